package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are a certification authority of one sandbox, a server's
// certificate for 127.0.0.1 and localhost, and a client's, as PEM files that
// are valid for a day.
type Certificates struct {
	CAFile                    string
	CertFile, KeyFile         string // the server's
	ClientCertFile, ClientKey string
}

// certificateLife is how long a sandbox's certificates are valid.
const certificateLife = 24 * time.Hour

// NewCertificates writes a new authority and its certificates into dir.
func NewCertificates(dir string) (*Certificates, error) {
	c := &Certificates{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "server.pem"), KeyFile: filepath.Join(dir, "server-key.pem"),
		ClientCertFile: filepath.Join(dir, "client.pem"), ClientKey: filepath.Join(dir, "client-key.pem"),
	}
	if err := c.write(); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	return c, nil
}

func (c *Certificates) write() error {
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife), BasicConstraintsValid: true,
		}
	}
	authority := template(1, "tidegate sandbox authority")
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := writeCertificate(c.CAFile, "", authority, authority, caKey, caKey); err != nil {
		return err
	}
	server := template(2, "localhost")
	server.DNSNames, server.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	// Nodes of a cluster are each other's clients.
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	client := template(3, "tidegate sandbox client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, leaf := range []struct {
		cert      *x509.Certificate
		file, key string
	}{{server, c.CertFile, c.KeyFile}, {client, c.ClientCertFile, c.ClientKey}} {
		leaf.cert.KeyUsage = x509.KeyUsageDigitalSignature
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := writeCertificate(leaf.file, leaf.key, leaf.cert, authority, key, caKey); err != nil {
			return err
		}
	}
	return nil
}

// writeCertificate signs cert and writes it, and its key unless keyFile is "".
func writeCertificate(file, keyFile string, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return err
	}
	if keyFile == "" {
		return nil
	}
	der, err = x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// ClientConfig is what a client needs to trust the server and to show its own
// certificate. The value is the caller's.
func (c *Certificates) ClientConfig() (*tls.Config, error) {
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s", c.CAFile)
	}
	own, err := tls.LoadX509KeyPair(c.ClientCertFile, c.ClientKey)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
}
