package serve

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// Role is a set of things that a caller may do.
type Role uint8

// The roles.
const (
	RoleRead         Role = 1 << iota // ask, look, and report observed reads
	RoleWriteSession                  // tell what a session wrote
	RoleOperate                       // change how the router answers
	RoleRows                          // see row contents
)

// ParseRole reads a role's name: read, write-session, operate, rows.
func ParseRole(name string) (Role, error) {
	switch name {
	case "read":
		return RoleRead, nil
	case "write-session":
		return RoleWriteSession, nil
	case "operate":
		return RoleOperate, nil
	case "rows":
		return RoleRows, nil
	}
	return 0, fmt.Errorf("unknown role %q (read, write-session, operate, rows)", name)
}

// MinTokenBytes keeps tokens out of reach of guessing.
const MinTokenBytes = 16

// Credential lets one caller in, by a token (Bearer, AUTH) or by the name in
// its client certificate (subject CN or DNS name). Its printed form hides the
// token.
type Credential struct {
	Name     string // for logs, and the user of AUTH
	Token    string // at least 16 bytes; empty: none
	CertName string // empty: none
	Roles    Role
}

// String hides the token.
func (c Credential) String() string { return "credential " + c.Name }

// GoString hides the token.
func (c Credential) GoString() string { return c.String() }

// LogValue hides the token.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Auth knows callers. It is immutable. It holds digests of tokens, and finds
// them by digest, so that the time of a look-up tells nothing of a token.
type Auth struct {
	byToken map[[sha256.Size]byte]*Credential
	byCert  map[string]*Credential
}

// NewAuth returns what knows these callers, or an error that tells everything
// that is wrong with them.
func NewAuth(creds []Credential) (*Auth, error) {
	a := &Auth{byToken: map[[sha256.Size]byte]*Credential{}, byCert: map[string]*Credential{}}
	var errs []error
	for i, c := range creds {
		wrong := func(text string) { errs = append(errs, fmt.Errorf("credential %d (%s): %s", i+1, c.Name, text)) }
		if c.Name == "" {
			wrong("has no name")
		}
		if c.Token == "" && c.CertName == "" {
			wrong("has neither a token nor a certificate's name")
		}
		if c.Roles == 0 {
			wrong("has no role")
		}
		if c.Token != "" && len(c.Token) < MinTokenBytes {
			wrong(fmt.Sprintf("its token is shorter than %d bytes", MinTokenBytes))
		}
		known := &Credential{Name: c.Name, CertName: c.CertName, Roles: c.Roles}
		if c.Token != "" {
			d := sha256.Sum256([]byte(c.Token))
			if a.byToken[d] != nil {
				wrong("its token is another's too")
			}
			a.byToken[d] = known
		}
		if c.CertName != "" {
			if a.byCert[c.CertName] != nil {
				wrong("its certificate's name is another's too")
			}
			a.byCert[c.CertName] = known
		}
	}
	if len(creds) == 0 {
		errs = append(errs, errors.New("auth knows no credential"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

// token returns who carries a token; nil: nobody.
func (a *Auth) token(t string) *Credential { return a.byToken[sha256.Sum256([]byte(t))] }

// cert returns who showed a verified client certificate; nil: nobody known.
func (a *Auth) cert(state *tls.ConnectionState) *Credential {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	leaf := state.VerifiedChains[0][0]
	if c := a.byCert[leaf.Subject.CommonName]; c != nil {
		return c
	}
	for _, name := range leaf.DNSNames {
		if c := a.byCert[name]; c != nil {
			return c
		}
	}
	return nil
}

// allow checks that the caller of r may do what needs the role.
func (a *Auth) allow(r *http.Request, need Role) *wireError {
	if a == nil {
		return nil
	}
	who, why := a.cert(r.TLS), "a bearer token or a client certificate is needed"
	switch h := r.Header["Authorization"]; {
	case who != nil:
	case len(h) == 0 || len(h) == 1 && h[0] == "":
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			why = "no caller is known by a name in this client certificate, and no bearer token is given"
		}
	default:
		scheme, token, _ := strings.Cut(h[0], " ")
		switch {
		case len(h) > 1 || !strings.EqualFold(scheme, "bearer"):
			why = "the header Authorization is wanted once, as Bearer and a token"
		default:
			who, why = a.token(token), "no caller is known by this bearer token"
		}
	}
	if who == nil {
		return fail(http.StatusUnauthorized, CodeUnauthorized, "", why)
	}
	if who.Roles&need == 0 {
		return fail(http.StatusForbidden, CodeForbidden, "", "this caller lacks the role for that")
	}
	return nil
}
