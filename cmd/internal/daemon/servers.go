package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"

	"tidegate/binlog"
	"tidegate/cmd/internal/config"
	"tidegate/router/serve"
)

// ServerConfigs translates the configured servers, those of the names in only
// alone when it is not empty. The error tells everything that is wrong.
func ServerConfigs(cfg *config.Config, only []string) ([]binlog.ServerConfig, error) {
	var out []binlog.ServerConfig
	var errs []error
	for i, s := range cfg.Servers {
		if len(only) > 0 && !slices.Contains(only, s.Name) {
			continue
		}
		t, err := clientTLS(s.TLS)
		if err != nil {
			errs = append(errs, fmt.Errorf("servers[%d].tls: server %s: %w", i, s.Name, err))
		}
		out = append(out, binlog.ServerConfig{
			Name: s.Name, Addr: s.Addr, AppAddr: s.AppAddr, User: s.User, Password: s.Password.Reveal(), TLS: t, Follow: s.Follow,
		})
	}
	for _, name := range only {
		if !slices.ContainsFunc(cfg.Servers, func(s config.Server) bool { return s.Name == name }) {
			var known []string
			for _, s := range cfg.Servers {
				known = append(known, s.Name)
			}
			errs = append(errs, fmt.Errorf("no server %q in the configuration; it has %v", name, known))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// clientTLS reads the files of a TLS client; nil when TLS is off.
func clientTLS(t config.TLS) (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	if t.Verify == "ca" {
		verifyAuthority(c)
	}
	return c, nil
}

// verifyAuthority makes c ask for a certificate of its authorities, whatever it
// names, as MySQL's own clients do under VERIFY_CA.
func verifyAuthority(c *tls.Config) {
	c.InsecureSkipVerify = true // the name; the chain is verified below
	c.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
}

// auth translates the configured callers; nil when there are none.
func auth(cfg *config.Config) (*serve.Auth, error) {
	var creds []serve.Credential
	roles := func(names []string) (r serve.Role, err error) {
		for _, n := range names {
			one, err := serve.ParseRole(n)
			if err != nil {
				return 0, err
			}
			r |= one
		}
		return r, nil
	}
	for _, t := range cfg.Auth.Tokens {
		r, err := roles(t.Roles)
		if err != nil {
			return nil, fmt.Errorf("auth.tokens: %w", err)
		}
		creds = append(creds, serve.Credential{Name: t.Name, Token: t.Token.Reveal(), Roles: r})
	}
	for _, c := range cfg.Auth.Clients {
		r, err := roles(c.Roles)
		if err != nil {
			return nil, fmt.Errorf("auth.clients: %w", err)
		}
		creds = append(creds, serve.Credential{Name: c.Name, CertName: c.Name, Roles: r})
	}
	if len(creds) == 0 {
		return nil, nil
	}
	a, err := serve.NewAuth(creds)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return a, nil
}
