package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// Why there is no connection is said once, with what helps.
func TestDial_NoConnection_WhyAndWhatHelps(t *testing.T) {
	const nobody = "127.0.0.1:1"
	for address, want := range map[string][2]string{
		"postgres://u@" + nobody + "/d":                  {"connection refused", "listen_addresses"},
		"postgres://u@-no-name-of-a-host-/d":             {"no such host", "the name of the host"},
		"postgres://u@" + nobody + "/d?sslmode=nonsense": {"sslmode is invalid", "sslmode"},
	} {
		_, err := dial(context.Background(), address, false)
		var e *freshet.Error
		if !errors.As(err, &e) || strings.Count(err.Error(), want[0]) != 1 || !strings.Contains(e.Fix, want[1]) {
			t.Errorf("%s: got %v, and as remedy %q, wanted %q once, and %q", address, err, e.Fix, want[0], want[1])
		}
	}
}

func TestRefused_ByWhatTheServerSays_Remedy(t *testing.T) {
	for _, c := range []struct {
		code, message, remedy string
		want                  freshet.Code
	}{
		{"28P01", `password authentication failed for user "u"`, "PGPASSWORD", freshet.CodeSourceRefused},
		{"28000", `no pg_hba.conf entry for host "1.2.3.4", user "u", database "d", no encryption`, "sslmode=require", freshet.CodeSourceRefused},
		{"28000", `no pg_hba.conf entry for host "1.2.3.4", user "u", database "d", SSL encryption`, "pg_reload_conf", freshet.CodeSourceRefused},
		{"3D000", `database "d" does not exist`, "name of the database", freshet.CodeSourceRefused},
		{"42501", "permission denied for table t", "rights of the role", freshet.CodeSourceRefused},
		{"53300", "sorry, too many clients already", "max_connections", freshet.CodeSourceUnreachable},
		{"08P01", "unsupported startup parameter", "a pooler", freshet.CodeSourceRefused},
		{"57P03", "the database system is starting up", "", freshet.CodeSourceUnreachable},
	} {
		err := refused("h:1/d", &pgconn.PgError{Severity: "FATAL", Code: c.code, Message: c.message})
		var e *freshet.Error
		if !errors.As(err, &e) || e.Code != c.want || !strings.Contains(e.Fix, c.remedy) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %v, and as remedy %q, wanted %s, and %q", c.message, err, e.Fix, c.want, c.remedy)
		}
	}
}
