package binlog

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	driver "github.com/go-sql-driver/mysql"
)

// tlsFor is the TLS configuration for a connection to the server; nil: none.
// The name to look for in the certificate is the host's unless one is given:
// one of the two MySQL clients fills it in by itself, the other does not.
func (c *ServerConfig) tlsFor() *tls.Config {
	if c.TLS == nil || c.TLS.InsecureSkipVerify || c.TLS.ServerName != "" {
		return c.TLS
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		host = c.Addr
	}
	t := c.TLS.Clone()
	t.ServerName = host
	return t
}

// errSecureTransport is ER_SECURE_TRANSPORT_REQUIRED.
const errSecureTransport = 3159

// refuseTLS names what about TLS stands between Tidegate and a server, and how
// to mend it: no new attempt can. It returns nil for every other error.
func refuseTLS(s *ServerConfig, err error) *RefusedError {
	if err == nil {
		return nil
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	refused := func(reason, mend string) *RefusedError {
		return &RefusedError{Server: s.Name, Reason: reason, Mend: mend}
	}
	switch {
	case errors.As(err, &authority):
		return refused("its certificate is not trusted: "+authority.Error(),
			"tls.ca_file of the server in the configuration: the PEM file of the authority that signed its certificate (for one that mysqld made itself: ca.pem in its data folder)")
	case errors.As(err, &name):
		return refused("its certificate does not name it: "+name.Error(),
			"tls.server_name of the server in the configuration: a name in its certificate; certificates that mysqld made itself name nothing and need tls.verify: ca")
	case errors.As(err, &invalid):
		return refused("its certificate is not valid: "+invalid.Error(), "a new certificate for the server (ALTER INSTANCE RELOAD TLS loads it)")
	case isMySQL(err, errSecureTransport), strings.Contains(err.Error(), "require_secure_transport"):
		return refused("it takes connections over TLS only (require_secure_transport is ON)", "tls: {enabled: true, ca_file: ...} of the server in the configuration")
	case errors.Is(err, driver.ErrNoTLS), strings.Contains(err.Error(), "does not support TLS"):
		return refused("it does not offer TLS, and its configuration here asks for it", "ssl_cert and ssl_key for mysqld, or tls: {enabled: false} of the server in the configuration")
	}
	return nil
}
