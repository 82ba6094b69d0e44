package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

func TestSource_NoBroker_SaysWhichAndWhy(t *testing.T) {
	const addr = "127.0.0.1:1"
	src, err := kafka.NewSource([]string{addr}, kafka.Topics{Names: []string{"orders"}}, kafka.RouteTo("t"),
		pairs{}, &kafka.Options{Group: "app", ConnectTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e := wantCode(t, newSink().copy(t).run(t.Context(), src), freshet.CodeSourceUnreachable)
	if e.Class != freshet.ClassEnvironment || !strings.Contains(e.Error(), addr) ||
		!strings.Contains(e.Error(), "connection refused") {
		t.Fatalf("got %v", e)
	}
}

func TestSource_SASL_LetsInOrRefuses(t *testing.T) {
	b := newBrokerFor(t, kgo.SASL(scram.Auth{User: "root", Pass: "pw"}.AsSha256Mechanism()), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "root", "pw"), kfake.Superuser("SCRAM-SHA-512", "ada", "pw"),
		kfake.Superuser("PLAIN", "bob", "pw"))
	b.topic("orders", 1)
	want := b.put("orders", 0, "n=1")
	all := []kafka.SASL{
		{Mechanism: "SCRAM-SHA-256", Username: "root", Password: "pw"},
		{Mechanism: "SCRAM-SHA-512", Username: "ada", Password: "pw"},
		{Mechanism: "PLAIN", Username: "bob", Password: "pw"},
	}
	for _, s := range all {
		k := newSink()
		b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.SASL = &s; o.Group = s.Mechanism })
		k.want(t, "t", want)
	}
	b.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code // kfake itself hangs up
		return resp, nil, true
	})
	for _, s := range all {
		s.Password = "wrong"
		start := time.Now()
		err := b.catchUp(newSink(), "orders", func(o *kafka.Options) { o.SASL = &s })
		e := wantCode(t, err, freshet.CodeSourceRefused)
		if e.Class != freshet.ClassEnvironment || time.Since(start) > 5*time.Second {
			t.Fatalf("got %v after %s", e, time.Since(start))
		}
	}
}

func TestSource_NoTokenInTheFile_IsSaidAtOnce(t *testing.T) {
	b := newBroker(t)
	b.topic("orders", 1)
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{empty: "found nothing", empty + ".none": "no such file"} {
		e := wantCode(t, b.catchUp(newSink(), "orders", func(o *kafka.Options) {
			o.SASL = &kafka.SASL{Mechanism: "OAUTHBEARER", TokenFile: file}
		}), freshet.CodeBadValue)
		if e.Class != freshet.ClassInput || !strings.Contains(e.Error(), want) {
			t.Errorf("got %v, want something on %q", e, want)
		}
	}
}

func TestSource_NoRightOnTheTopic_IsRefused(t *testing.T) {
	b := newBrokerFor(t, kgo.SASL(scram.Auth{User: "root", Pass: "pw"}.AsSha256Mechanism()), kfake.EnableSASL(),
		kfake.EnableACLs(),
		kfake.Superuser("SCRAM-SHA-256", "root", "pw"), kfake.User("PLAIN", "bob", "pw"))
	b.topic("orders", 1)
	e := wantCode(t, b.catchUp(newSink(), "orders", func(o *kafka.Options) {
		o.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: "bob", Password: "pw"}
	}), freshet.CodeSourceRefused)
	if !strings.Contains(e.Fix, "grant") {
		t.Fatalf("got the remedy %q", e.Fix)
	}
}

// certificate makes a self-signed one for localhost, in files.
func certificate(t *testing.T) (cert, key string, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

func TestSource_MutualTLS_LetsInOrRefuses(t *testing.T) {
	cert, key, pair := certificate(t)
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	b := newBrokerFor(t, kgo.DialTLSConfig(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert}))
	b.topic("orders", 1)
	want := b.put("orders", 0, "n=1")
	k := newSink()
	mutual := &kafka.TLS{CAFile: cert, CertFile: cert, KeyFile: key}
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.TLS = mutual })
	k.want(t, "t", want)

	quick := func(o *kafka.Options) { o.ConnectTimeout = time.Second }
	for name, set := range map[string]*kafka.TLS{
		"unknown authority": {CertFile: cert, KeyFile: key},
		"other name":        {CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "elsewhere"},
		"no certificate":    {CAFile: cert},
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, b.catchUp(newSink(), "orders", func(o *kafka.Options) { quick(o); o.TLS = set }),
				freshet.CodeSourceRefused)
		})
	}
	nowhere := &kafka.TLS{CAFile: "/nowhere"}
	err = b.catchUp(newSink(), "orders", func(o *kafka.Options) { quick(o); o.TLS = nowhere })
	wantCode(t, err, freshet.CodeBadValue)
}

// states records what an observer is told.
type states struct {
	mu      sync.Mutex
	seen    []string
	retries int
	trouble map[string]bool // what was told to Retry and not to Recovered
	changed chan struct{}
}

func (s *states) observer() freshet.Observer {
	s.changed, s.trouble = make(chan struct{}, 1000), map[string]bool{}
	return freshet.Observer{
		State: func(state string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen = append(s.seen, state)
			s.changed <- struct{}{}
		},
		Retry: func(what string, _ error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.retries++
			s.trouble[what] = true
		},
		Recovered: func(what string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.trouble, what)
		},
	}
}

func TestSource_BrokerRestarts_WaitsAndGoesOn(t *testing.T) {
	dir := t.TempDir()
	first, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(dir), shortSessions)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(first.ListenAddrs()[0])
	b, k := &broker{first, newClient(t, first), t}, newSink()
	b.topic("orders", 2)
	want := b.fill("orders", 2, 10)
	var seen states
	_, stop := b.follow(k, b.source("orders", func(o *kafka.Options) { o.Observer = seen.observer() }))
	k.wait(t, "t", rows(20))
	b.Client.Close()
	first.Close()
	<-seen.changed // waiting

	var number int
	for _, c := range port {
		number = number*10 + int(c-'0')
	}
	second, err := kfake.NewCluster(kfake.Ports(number), kfake.DataDir(dir), shortSessions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Close)
	b.Cluster, b.Client = second, newClient(t, second)
	want = append(want, b.fill("orders", 2, 10)...)
	k.wait(t, "t", rows(40))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.seen) < 2 || seen.seen[0] != "waiting" || seen.seen[1] != "running" || seen.retries == 0 {
		t.Fatalf("got states %v and %d retries, want waiting, running", seen.seen, seen.retries)
	}
	if len(seen.trouble) > 0 {
		t.Errorf("found still in trouble: %v", seen.trouble)
	}
}

func TestNewSource_BadArguments_NamesAllFaults(t *testing.T) {
	_, err := kafka.NewSource(nil, kafka.Topics{Pattern: "("}, kafka.RouteTo("t"), pairs{}, &kafka.Options{
		Tombstones: "eat", Workers: -1, SASL: &kafka.SASL{Mechanism: "NONE"}, TLS: &kafka.TLS{CertFile: "x"},
		Columns: kafka.Columns{Key: "k", Topic: "K"}, Start: kafka.Start{Latest: true, Time: time.Now()},
	})
	for _, want := range []string{"brokers:", "topics:", "group:", "tombstones:", "workers:", "sasl:", "tls:",
		"columns:", "start:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something on %s", err, want)
		}
	}
}
