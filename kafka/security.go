package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// TLS are the settings of encrypted connections. The zero value trusts the system's authorities.
type TLS struct {
	CAFile     string // PEM; the only authorities trusted. Default: the system's
	CertFile   string // PEM; the client's certificate, for mutual TLS. With KeyFile
	KeyFile    string // PEM
	ServerName string // the name that the broker's certificate must have. Default: the host that is dialled
	Insecure   bool   // takes any certificate of the broker: anyone in between can read and change everything
}

func (t *TLS) validate() error {
	if t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("tls: found only one of certificate and key, wanted both or none")
	}
	return nil
}

// Config reads the files. Errors: a file that is missing or holds no PEM.
func (t *TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificate authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the certificate authorities: found no PEM certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// SASL says who we are.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	Username  string
	Password  string
	// Token returns the bearer token for a new connection. Default: what TokenFile holds then, without white
	// space around.
	Token     func(ctx context.Context) (string, error)
	TokenFile string
}

func (s *SASL) validate() error {
	if s == nil {
		return nil
	}
	switch s.Mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if s.Username == "" || s.Password == "" {
			return fmt.Errorf("sasl: found no user name or no password, wanted both for %s", s.Mechanism)
		}
	case "OAUTHBEARER":
		if (s.Token == nil) == (s.TokenFile == "") {
			return errors.New("sasl: found no source of tokens or two, wanted one for OAUTHBEARER")
		}
	default:
		return fmt.Errorf("sasl: found mechanism %q, wanted PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
			s.Mechanism)
	}
	return nil
}

func (s *SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.Username, Pass: s.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.Username, Pass: s.Password}.AsSha512Mechanism()
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := s.token(ctx)
		return oauth.Auth{Token: token}, err
	})
}

// check finds a file without a token at the start. Later ones are waited for: whoever renews the file may be
// late.
func (s *SASL) check() error {
	if s.TokenFile == "" {
		return nil
	}
	_, err := s.token(context.Background())
	return err
}

func (s *SASL) token(ctx context.Context) (string, error) {
	if s.Token != nil {
		return s.Token(ctx)
	}
	b, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("read the token: found nothing in %s", s.TokenFile)
	}
	return token, nil
}
