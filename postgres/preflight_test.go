package postgres

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// all is findings as text, one a line.
func all(found []Finding) string {
	var s strings.Builder
	for _, f := range found {
		fmt.Fprintf(&s, "%s | %s | %s | %s\n", f.Severity, f.Object, f.Message, f.Fix)
	}
	return s.String()
}

func TestCheck_EachFault_IsFoundAndItsFixMendsIt(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		role := strings.Trim(connAddressPath(t, address), "/")
		do(t, conn, fmt.Sprintf(`set search_path to public;
create role %[1]s login; grant create on database %[1]s to %[1]s;
create table keyless (a int);
create table nothing (a int primary key); alter table nothing replica identity nothing;
create unlogged table scratch (id int primary key);
create table left_out (id int primary key, at timestamptz, "odd name" char(3));
create table good (id int primary key, n numeric(10,2), d numeric, g int generated always as (id + 1) stored);
create publication p for table good, keyless, nothing with (publish = 'insert');
alter table good owner to %[1]s;`, role))
		t.Cleanup(func() {
			c := connect(t, address)
			do(t, c, "drop owned by "+role+"; drop role "+role)
		})
		of, _ := url.Parse(address)
		of.User = url.User(role)
		options := &Options{Slot: "p", Tables: []string{"public.*"}}
		found, err := Check(t.Context(), of.String(), options)
		if err != nil {
			t.Fatal(err)
		}
		text := all(found)
		for _, want := range []string{
			"blocks | role " + role + " | found no right to replicate",
			"blocks | table public.keyless | found no right to select",
			"warns | publication p | found kinds of change that it leaves out",
			"blocks | table public.keyless | found neither a primary key",
			"blocks | table public.nothing | found REPLICA IDENTITY NOTHING",
			"blocks | table public.scratch | found it UNLOGGED",
			"warns | table public.left_out | found it missing in the publication p",
			"notes | column public.good.n | numeric(10,2) becomes decimal(10,2): NaN becomes null",
			"notes | column public.left_out.at | timestamp with time zone becomes timestamp: infinity",
			"notes | column public.left_out.odd name | character(3) becomes string: blanks at the end are left out; the column is " +
				"called odd_name",
			"notes | table public.good | the log does not send its generated columns: g",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("got\n%s\nwant %q in it", text, want)
			}
		}
		if strings.Contains(text, "column public.good.d ") {
			t.Errorf("got\n%s\nwant nothing of a numeric that stays text", text)
		}
		if !slices.IsSortedFunc(found, func(a, b Finding) int { return strings.Compare(order(a), order(b)) }) {
			t.Errorf("got\n%s\nwant the gravest first", text)
		}
		for _, f := range found {
			if f.Fix != "" && f.Severity != Notes {
				do(t, conn, f.Fix)
			}
		}
		found, err = Check(t.Context(), of.String(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Severity != Notes && f.Object != "server" { // whose version nothing here mends
				t.Errorf("after the fixes: got %s", all([]Finding{f}))
			}
		}
	})
}

func connAddressPath(t *testing.T, address string) string {
	t.Helper()
	of, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return of.Path
}

func order(f Finding) string {
	return map[Severity]string{Blocks: "0", Warns: "1", Notes: "2"}[f.Severity]
}

func TestCheck_SettingsOfTheServer_AreNamedWithTheirFix(t *testing.T) {
	f := &facts{version: 150001, settings: map[string]string{"wal_level": "replica", "max_replication_slots": "2",
		"max_wal_senders": "5", "max_slot_wal_keep_size": "-1", "idle_replication_slot_timeout": "3600"},
		encoding: "SQL_ASCII", standby: true, slots: 2, senders: 1}
	text := all(f.checkServer())
	for _, want := range []string{
		"blocks | wal_level | found replica, wanted logical: the log does not say what happened to rows | ALTER SYSTEM SET wal_level",
		"blocks | max_replication_slots | found 2 of 2 in use, wanted one more | ALTER SYSTEM SET max_replication_slots = 12;",
		"blocks | server | found a standby of PostgreSQL 15", "warns | server | found PostgreSQL 15.1",
		"notes | max_slot_wal_keep_size", "warns | idle_replication_slot_timeout | found 3600", "warns | database | found the encoding",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	if strings.Contains(text, "max_wal_senders") {
		t.Errorf("got\n%s\nwant nothing of max_wal_senders", text)
	}
}
