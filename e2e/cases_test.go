//go:build unix

package e2e

import (
	"testing"

	"github.com/happyd/happyd/e2e/cases"
	"github.com/happyd/happyd/e2e/harness"
)

// notYet are cases for what is not built yet.
var notYet = map[string]string{
	"secret-redaction": "redaction is not built yet",
}

func TestSharedClaude(t *testing.T) { runCases(t, shared(t, "cases/claude")) }
func TestSharedCodex(t *testing.T)  { runCases(t, shared(t, "cases/codex")) }
func TestOwnCases(t *testing.T)     { runCases(t, "testdata/cases") }

func runCases(t *testing.T, dir string) {
	all, err := cases.LoadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for _, mode := range cases.Modes {
			t.Run(c.Name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				runCase(t, c, mode)
			})
		}
	}
}

func runCase(t *testing.T, c *cases.Case, mode cases.Mode) {
	if why := notYet[c.Name]; why != "" {
		t.Skip(why)
	}
	m := machine(t, harness.Options{})
	if c.Needs("codex") {
		m.Start()
		known := m.Provides("codex")
		m.Stop()
		if !known {
			t.Skip("the daemon does not know Codex yet")
		}
	}
	c.Play(t, m, mode)
	streams, err := m.Streams()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range c.Check(streams, mode) {
		t.Error(problem)
	}
	m.Stop()
}
