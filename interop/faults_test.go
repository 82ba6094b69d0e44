package interop_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// faultyS3 stands before the announced S3 server and, from a seed, answers 503 without asking it, lets requests land and
// loses the answer, or answers late.
type faultyS3 struct {
	*httptest.Server
	percent atomic.Int64 // of requests that suffer
	told    map[string]int
	mu      sync.Mutex
	random  *rand.Rand
}

func newFaultyS3(t *testing.T, random *rand.Rand) *faultyS3 {
	t.Helper()
	endpoint := os.Getenv("AWS_ENDPOINT_URL")
	if endpoint == "" || os.Getenv("S3_BUCKET") == "" || os.Getenv("S3_DIR") == "" {
		t.Skip("needs a real S3 server: AWS_ENDPOINT_URL, S3_BUCKET, S3_DIR are not all set (interop/README.md)")
	}
	origin, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	f := &faultyS3{random: random, told: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		// The Host header is part of the signature and stays.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = origin.Scheme, origin.Host, r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(proxy, w, r) }))
	t.Cleanup(f.Close)
	t.Cleanup(func() { t.Logf("faults: %v", f.told) })
	return f
}

func (f *faultyS3) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	switch f.draw() {
	case "before":
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`<Error><Code>SlowDown</Code><Message>injected</Message></Error>`))
	case "after, 500":
		next.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusInternalServerError)
	case "after, cut":
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case "slow":
		pause(700*time.Millisecond, r.Context().Done())
		next.ServeHTTP(w, r)
	default:
		next.ServeHTTP(w, r)
	}
}

func (f *faultyS3) draw() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.random.Int64N(100) >= f.percent.Load() {
		return ""
	}
	fault := []string{"before", "after, 500", "after, cut", "slow"}[f.random.IntN(4)]
	f.told[fault]++
	return fault
}

// env points the command at the faulty endpoint.
func (f *faultyS3) env() []string { return []string{"AWS_ENDPOINT_URL=" + f.URL} }

// TestStoreFaults_S3_NothingLostOrDoubled writes through the faults, with kills between.
func TestStoreFaults_S3_NothingLostOrDoubled(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	random := seeded(t)
	s3 := newFaultyS3(t, random)
	topic := b.topic(4, nil)
	where := "fire/" + topic
	file := pipeline(t, b, topic, "s3://"+os.Getenv("S3_BUCKET")+"/"+where+"/t", "    instance_id: fire-s3")
	stop := b.feed(topic, 4, 10)
	s3.percent.Store(20)
	for range rounds(t, 6) {
		p := start(t, s3.env(), "run", file, "--progress", "off")
		pause(time.Duration(1500+random.IntN(2000))*time.Millisecond, p.done)
		select {
		case <-p.done: // it may give up with a clear error, not otherwise
			if code := p.exit(time.Second); code != 3 {
				t.Fatalf("exit code %d, want 3 or still running:\n%s", code, tail(p.out.String(), 8000))
			}
		default:
			p.kill()
		}
	}
	stop()
	s3.percent.Store(0)
	start(t, s3.env(), "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	wantEachOnce(t, filepath.Join(os.Getenv("S3_DIR"), "data", os.Getenv("S3_BUCKET"), where, "t"), b.ends(topic))
}

// TestStoreFaults_DiskFull_WaitsAndGoesOn fills a small file system and makes it larger again.
func TestStoreFaults_DiskFull_WaitsAndGoesOn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small tmpfs")
	}
	b := needBroker(t)
	needReaders(t)
	small := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", small).CombinedOutput(); err != nil {
		t.Skipf("needs mount(8) of a tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", small).Run() })
	topic, table := b.topic(4, nil), filepath.Join(small, "t")
	file := pipeline(t, b, topic, table, "    instance_id: fire-full")
	stop := b.feed(topic, 4, 60)
	p := start(t, nil, "run", file, "--progress", "off")
	waitUntil(t, patience, "the disk is full", func() bool { return strings.Contains(p.out.String(), "space") || ended(p) })
	pause(2*time.Second, p.done)
	if ended(p) {
		if code := p.exit(time.Second); code != 3 || !strings.Contains(p.out.String(), "space") {
			t.Fatalf("exit code %d, want 3 and a word about space:\n%s", code, tail(p.out.String(), 8000))
		}
	}
	if out, err := exec.Command("mount", "-o", "remount,size=512m", small).CombinedOutput(); err != nil {
		t.Fatalf("remount: %v: %s", err, out)
	}
	pause(time.Second, nil)
	stop()
	if !ended(p) {
		p.signal(syscall.SIGTERM)
		p.mustEnd(patience)
	}
	start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	wantEachOnce(t, table, b.ends(topic))
}

func ended(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// waitUntil polls what has no event of its own: a disk that fills, a file that another process writes.
func waitUntil(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	deadline, ticker := time.After(limit), time.NewTicker(20*time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", limit, what)
		case <-ticker.C:
		}
	}
}
