package interop_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// secure is the announced broker with its listeners that ask who comes.
type secure struct {
	*broker
	sasl, tls, mutual string // brokers: SASL_SSL; SSL; SSL for those with a certificate
	ca, cert, key     string
	user, password    string
	tokenKey          string
}

func needSecureBroker(t *testing.T) *secure {
	t.Helper()
	s := &secure{broker: needBroker(t)}
	for name, into := range map[string]*string{
		"KAFKA_SASL_SSL_BROKERS": &s.sasl, "KAFKA_SSL_BROKERS": &s.tls, "KAFKA_MUTUAL_BROKERS": &s.mutual,
		"KAFKA_CA": &s.ca, "KAFKA_CERT": &s.cert, "KAFKA_KEY": &s.key, "KAFKA_USER": &s.user,
		"KAFKA_PASSWORD": &s.password, "KAFKA_TOKEN_KEY": &s.tokenKey,
	} {
		if *into = os.Getenv(name); *into == "" {
			t.Skipf("needs a broker that was started with --secure: %s is not set (interop/README.md)", name)
		}
	}
	return s
}

// trusting is the flag that trusts the broker's authority, before others.
func (s *secure) trusting(more ...string) []string {
	return append([]string{"--tls-ca", s.ca}, more...)
}

// login are the flags of a login with the password that the environment variable holds.
func (s *secure) login(mechanism, user, variable string) []string {
	return s.trusting("--sasl-mechanism", mechanism, "--sasl-username", user,
		"--sasl-password", "${secret:env:"+variable+"}")
}

func (s *secure) bearer(file string) []string {
	return s.trusting("--sasl-mechanism", "OAUTHBEARER", "--sasl-token-file", file)
}

// claims is what a token says.
type claims struct {
	Subject  string `json:"sub"`
	Issuer   string `json:"iss"`
	Audience string `json:"aud"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// token writes a token of the life for the user into the file, signed with the key.
func token(t *testing.T, file string, key *ecdsa.PrivateKey, life time.Duration) {
	t.Helper()
	now := time.Now()
	body, err := json.Marshal(claims{"freshet", "https://freshet.test", "freshet", now.Add(min(life, 0)).Unix(),
		now.Add(life).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256","kid":"freshet"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	// The file is replaced as a whole: the process reads it at any moment.
	fresh := file + ".new"
	if err := os.WriteFile(fresh, []byte(signed+"."+encode(signature)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, file); err != nil {
		t.Fatal(err)
	}
}

// issuerKey is the key whose tokens the broker takes.
func (s *secure) issuerKey() *ecdsa.PrivateKey {
	s.t.Helper()
	text, err := os.ReadFile(s.tokenKey)
	if err != nil {
		s.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		s.t.Fatalf("%s: no PEM", s.tokenKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	return key.(*ecdsa.PrivateKey)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// stranger makes files with a certificate that its own key signed, and that key.
func stranger(t *testing.T) (cert, key string) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "freshet"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// filled is a topic of two partitions with n events each.
func (s *secure) filled(n int) string {
	s.t.Helper()
	topic := s.topic(2, nil)
	for i := range n {
		s.produce(event(topic, 0, i), event(topic, 1, i))
	}
	return topic
}

// ingest starts the command on the topic with these flags.
func (s *secure) ingest(t *testing.T, servers, topic, table string, flags []string) *process {
	t.Helper()
	env := []string{"SECURE_PASSWORD=" + s.password, "SECURE_WRONG=opensesame"}
	args := append([]string{"ingest", "kafka://" + servers + "/" + topic, table, "--metadata",
		"partition,offset", "--every", "150ms", "--progress", "off"}, flags...)
	return start(t, env, args...)
}

// TestSecure_EachWayIn_EachOffsetOnce reads one topic by each way that the broker lets clients in.
func TestSecure_EachWayIn_EachOffsetOnce(t *testing.T) {
	s := needSecureBroker(t)
	needReaders(t)
	topic := s.filled(100)
	tokenFile := filepath.Join(t.TempDir(), "token")
	token(t, tokenFile, s.issuerKey(), time.Hour)
	for _, way := range []struct {
		name, servers string
		flags         []string
	}{
		{"TLS", s.tls, s.trusting()},
		{"mutual TLS", s.mutual, s.trusting("--tls-cert", s.cert, "--tls-key", s.key)},
		{"PLAIN", s.sasl, s.login("PLAIN", s.user, "SECURE_PASSWORD")},
		{"SCRAM-SHA-256", s.sasl, s.login("SCRAM-SHA-256", s.user, "SECURE_PASSWORD")},
		{"SCRAM-SHA-512", s.sasl, s.login("SCRAM-SHA-512", s.user, "SECURE_PASSWORD")},
		{"OAUTHBEARER", s.sasl, s.bearer(tokenFile)},
	} {
		t.Run(way.name, func(t *testing.T) {
			table := filepath.Join(t.TempDir(), "t")
			s.ingest(t, way.servers, topic, table, append(way.flags, "--until-caught-up")).mustEnd(patience)
			wantEachOnce(t, table, s.ends(topic))
		})
	}
}

// TestSecure_NotLetIn_SaysWhy comes to each listener with what does not let it in.
func TestSecure_NotLetIn_SaysWhy(t *testing.T) {
	s := needSecureBroker(t)
	topic := s.filled(1)
	cert, key := stranger(t)
	dir := t.TempDir()
	expired, forged := filepath.Join(dir, "expired"), filepath.Join(dir, "forged")
	token(t, expired, s.issuerKey(), -time.Hour)
	token(t, forged, newKey(t), time.Hour)
	for _, way := range []struct {
		name, servers string
		flags         []string
		exit          int
		says          []string
	}{
		{"unknown authority", s.tls, []string{"--tls"}, 3, []string{"FRE-2002", "unknown authority", "tls.ca"}},
		{"other authority", s.tls, []string{"--tls-ca", cert}, 3, []string{"FRE-2002", "unknown authority"}},
		{"other name", s.tls, s.trusting("--tls-server-name", "elsewhere"), 3, []string{"FRE-2002", "elsewhere"}},
		{"no authority file", s.tls, []string{"--tls-ca", filepath.Join(dir, "none")}, 2,
			[]string{"FRE-1004", "no such file"}},
		{"no certificate", s.mutual, s.trusting(), 3, []string{"FRE-2002", "bad certificate", "tls.cert"}},
		{"certificate of a stranger", s.mutual, s.trusting("--tls-cert", cert, "--tls-key", key), 3,
			[]string{"FRE-2002", "bad certificate", "tls.cert"}},
		{"PLAIN, wrong password", s.sasl, s.login("PLAIN", s.user, "SECURE_WRONG"), 3,
			[]string{"FRE-2002", "SASL_AUTHENTICATION_FAILED"}},
		{"SCRAM-SHA-256, wrong password", s.sasl, s.login("SCRAM-SHA-256", s.user, "SECURE_WRONG"), 3,
			[]string{"FRE-2002", "SASL_AUTHENTICATION_FAILED"}},
		{"SCRAM-SHA-512, wrong password", s.sasl, s.login("SCRAM-SHA-512", s.user, "SECURE_WRONG"), 3,
			[]string{"FRE-2002", "SASL_AUTHENTICATION_FAILED"}},
		{"unknown user", s.sasl, s.login("SCRAM-SHA-512", "nobody", "SECURE_PASSWORD"), 3,
			[]string{"FRE-2002", "SASL_AUTHENTICATION_FAILED"}},
		{"token that has expired", s.sasl, s.bearer(expired), 3, []string{"FRE-2002"}},
		{"token of a stranger", s.sasl, s.bearer(forged), 3, []string{"FRE-2002"}},
		{"no token", s.sasl, s.bearer(filepath.Join(dir, "none")), 2, []string{"FRE-1004", "no such file"}},
		{"no rights", s.sasl, s.login("SCRAM-SHA-512", "guest", "SECURE_PASSWORD"), 3,
			[]string{"FRE-2002", "refuses to describe the topics", "grant"}},
		{"TLS to a broker without", s.servers, s.trusting(), 3, []string{"FRE-2001", "TLS"}},
		{"plain text to a broker with TLS", s.tls, nil, 3, []string{"FRE-2001", "TLS"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			table := filepath.Join(t.TempDir(), "t")
			p := s.ingest(t, way.servers, topic, table, append(way.flags, "--until-caught-up"))
			code, out := p.exit(patience), p.out.String()
			if code != way.exit {
				t.Errorf("exit code %d, want %d", code, way.exit)
			}
			for _, want := range way.says {
				if !strings.Contains(out, want) {
					t.Errorf("nothing on %q", want)
				}
			}
			for _, secret := range []string{s.password + `"`, "opensesame"} {
				if strings.Contains(out, secret) {
					t.Errorf("%q is shown", secret)
				}
			}
			if _, err := os.Stat(table); err == nil {
				t.Error("a table was made")
			}
			t.Logf("exit code %d:\n%s", code, tail(out, 2000))
		})
	}
}

// The tests of logins run before all others, one after another: a login must be answered within seconds, and engines that
// start take these.

// TestSecure_TokenExpires_LogsInWithTheNextOne runs on through the life of its first token.
func TestSecure_TokenExpires_LogsInWithTheNextOne(t *testing.T) {
	s := needSecureBroker(t)
	needReaders(t)
	topic, table := s.filled(10), filepath.Join(t.TempDir(), "t")
	file := filepath.Join(t.TempDir(), "token")
	key := s.issuerKey()
	const life = 15 * time.Second
	token(t, file, key, life)
	first := time.Now()
	p := s.ingest(t, s.sasl, topic, table, s.bearer(file))
	waitUntil(t, patience, "the table is there", func() bool {
		_, err := os.Stat(filepath.Join(table, "_delta_log"))
		return err == nil || ended(p)
	})
	token(t, file, key, time.Hour)
	stop := s.feed(topic, 2, 2)
	pause(time.Until(first.Add(life+10*time.Second)), p.done)
	stop()
	if ended(p) {
		t.Fatalf("freshet ended by itself: %v\n%s", p.err, tail(p.out.String(), 8000))
	}
	p.signal(syscall.SIGTERM)
	p.mustEnd(patience)
	s.ingest(t, s.sasl, topic, table, append(s.bearer(file), "--until-caught-up")).mustEnd(patience)
	wantEachOnce(t, table, s.ends(topic))
}
