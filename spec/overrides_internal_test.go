package spec

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
)

// overridden is a pipeline of a database with these overrides.
func overridden(t *testing.T, overrides string) *Pipeline {
	t.Helper()
	project, err := OpenProject("", "", true)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(project, "p.yaml", []byte(`pipeline: p
source: {postgres: {url: "postgres://h/d"}}
target:
  delta: {table: "a.{schema}_{table}", mode: mirror, properties: {delta.checkpointInterval: "10"}, changelog: "a.{schema}_{table}_log"}
  overrides:
`+overrides), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Tables of the source whose names in the lake look alike are told apart, and a later override has the last word.
func TestOverrides_OfATable_LastThatMatchesHasTheLastWord(t *testing.T) {
	p := overridden(t, `    - {match: "crm.*", partition_by: [x], compatibility: broad, salt: "0123456789abcdef", columns: {email: {mask: sha256}, n: {drop: true}}}
    - {match: crm.users, partition_by: [y], properties: {delta.checkpointInterval: "20"}, columns: {EMAIL: {drop: true}}}
`)
	got := map[string]*lake.TargetOptions{}
	for _, of := range [][2]string{{"crm", "users"}, {"crm", "old_users"}, {"crm_old", "users"}} {
		table := p.tableOf(of[0], of[1])
		o := &lake.TargetOptions{Properties: map[string]string{"delta.checkpointInterval": "10"}}
		p.override(table, o)
		got[of[0]+"."+of[1]] = o
	}
	one, two := got["crm.users"], got["crm_old.users"]
	if strings.Join(one.PartitionBy, "") != "y" || one.Properties["delta.checkpointInterval"] != "20" || !one.Key.CopyOnWrite || len(one.Masks) != 0 {
		t.Errorf("crm.users: got %+v, want what both say of it, the later in the place of the former", one)
	}
	if two.PartitionBy != nil || two.Properties["delta.checkpointInterval"] != "10" || two.Masks["email"] != "" {
		t.Errorf("crm_old.users: got %+v, want what the target says: its name in the lake begins alike, and no more", two)
	}
	hidden := p.hidden()
	if h := hidden("crm.users", "email"); !h.LeftOut || h.Key != nil {
		t.Errorf("crm.users: got %+v of email, want it left out", h)
	}
	if h := hidden("crm.other", "Email"); h.Key == nil || h.LeftOut {
		t.Errorf("crm.other: got %+v of email, want it masked", h)
	}
	if h := hidden("crm_old.users", "email"); h != (postgres.Hiding{}) {
		t.Errorf("crm_old.users: got %+v, want nothing hidden", h)
	}
	if table := p.ofChangeLog("a.crm_users_log"); table != "a.crm_users" {
		t.Errorf("got %s, want the table of the change log", table)
	}
}

func TestOverrides_ThatNoTableHas_CheckTells(t *testing.T) {
	p := overridden(t, `    - {match: "crm.*", salt: "0123456789abcdef", columns: {email: {mask: sha256}, mail: {drop: true}}}
    - {match: sales.orders, partition_by: [x]}
    - {match: "*.users", deletes: soft}
`)
	found := p.checkOverridesOn([]postgres.Surveyed{{Schema: "crm", Name: "users", Columns: []string{"id", "Email"}}, {Schema: "crm", Name: "old", Columns: []string{"id"}}})
	var objects []string
	for _, f := range found {
		objects = append(objects, f.Object)
	}
	if got, want := strings.Join(objects, "; "), "override crm.*, column mail; override sales.orders"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
