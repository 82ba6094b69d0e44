package postgres

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// refused tells a server that does not let us in from one that does not answer, and what helps.
func refused(place string, err error) error {
	var known *freshet.Error
	if errors.As(err, &known) {
		return err
	}
	e := &freshet.Error{Code: freshet.CodeSourceUnreachable, Class: freshet.ClassEnvironment, Place: place,
		Msg: "the PostgreSQL server does not answer", Err: plain(err), Fix: unreachableFix(err)}
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return e
	}
	switch {
	case len(said.Code) == 5 && (said.Code[:2] == "28" || said.Code[:2] == "3D" || said.Code[:2] == "42"):
		e.Code, e.Msg = freshet.CodeSourceRefused, "the PostgreSQL server refuses us"
		e.Fix = refusalFix(said)
	case said.Code == "53300":
		e.Msg, e.Fix = "the PostgreSQL server takes no more connections", "raise max_connections there, or end other connections; we need some six"
	case said.Code == "08P01":
		return pooler(said.Message)
	}
	return e
}

// refusalFix is what helps against a refusal.
func refusalFix(said *pgconn.PgError) string {
	switch {
	case said.Code == "28P01":
		return "check user and password: the password is that of the address, of PGPASSWORD, or of a password file"
	case said.Code == "3D000":
		return "check the name of the database, behind the / of the address"
	case strings.Contains(said.Message, "no encryption"):
		return "the server may demand TLS: write sslmode=require, or verify-full, into the address; else add the role to pg_hba.conf"
	case strings.Contains(said.Message, "pg_hba.conf"):
		return "add a line for the role and our host to pg_hba.conf: `host DATABASE ROLE ADDRESS scram-sha-256`, and `SELECT pg_reload_conf();`"
	}
	return "check user, password, database, pg_hba.conf and the rights of the role"
}

// unreachableFix is what helps where nobody answers.
func unreachableFix(err error) string {
	var name *net.DNSError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name):
		return "check the name of the host"
	case errors.As(err, &unknown):
		return "name the authority's certificate with sslrootcert=FILE in the address"
	case errors.As(err, &host), errors.As(err, &certificate):
		return "connect by the name that the server's certificate has, or have it made for this one"
	case strings.Contains(err.Error(), noTLS):
		return "the server speaks no TLS: turn it on there (ssl = on), or write sslmode=disable where the way to it is safe"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "check host and port, and that the server runs and listens there (listen_addresses)"
	}
	return ""
}

// noTLS is how an attempt ends with a server that speaks no TLS.
const noTLS = "server refused TLS connection"

// attempts is an error of several attempts to connect, with what each says once.
type attempts struct {
	text string
	err  error
}

func (a *attempts) Error() string { return a.text }
func (a *attempts) Unwrap() error { return a.err }

// plain says of an error to connect what the attempts say, each once. That a server speaks no TLS counts only where nothing else does: without
// a word on it, an attempt without follows.
func plain(err error) error {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return err
	}
	var lines []string
	for line := range strings.Lines(failed.Unwrap().Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	others := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(line, noTLS) })
	if len(others) > 0 {
		lines = others
	}
	if last := lines[len(lines)-1]; len(lines) == 2 && strings.HasSuffix(lines[0], last) { // the same, with and without what was done
		lines = lines[:1]
	}
	return &attempts{strings.Join(lines, "; "), err}
}
