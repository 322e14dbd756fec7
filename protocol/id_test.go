package protocol

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nrednav/cuid2"
	"pgregory.net/rapid"
)

// These values may never change: see the note at the top of id.go.
func TestDerivationsArePinned(t *testing.T) {
	const (
		tag  = "happyd-k2v9x0c4b7n1m5q8w3e6r0t2"
		uuid = "7d0b1f0e-4a39-4f6e-9c58-0f2f6c1d9a11"
	)
	for _, tc := range []struct{ name, got, want string }{
		{"no parts", DeriveID(), "tig37jwshawiv62ce03lidzp"},
		{"one empty part", DeriveID(""), "tbo73xeo8258thatcpk4641o"},
		{"one part", DeriveID("a"), "hy1d2r0m5kd6ebq2nr0u1ove"},
		{"two parts", DeriveID("ab", "c"), "sx95eld5xooj8bmc9aop040v"},
		{"two parts, other border", DeriveID("a", "bc"), "ligxk2jxyf3uiziozp36505h"},
		{"long part", DeriveID(strings.Repeat("x", 1000)), "cg04u8yvr92tbsemx6wjpovo"},
		{"first envelope", EnvelopeID(tag, uuid, 0), "gjiy0leu8i2vhfa2g66trr31"},
		{"second envelope", EnvelopeID(tag, uuid, 1), "annzrqldq8x1d5mrbuc7zy3t"},
		{"turn", TurnID(tag, uuid), "qebf6n8ocwnuehh75ah3mpxb"},
		{"claude subagent", SubagentID("claude", "toolu_01ABC"), "ca7763be45664ba61b8a6ac8"},
		{"codex subagent", SubagentID("codex", "thread_1"), "c68970fd1ac9a4087b456a62"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("derived %q, want %q", tc.got, tc.want)
			}
		})
	}
}

// The published vectors of the real command line, where they are at hand.
func TestSubagentIDsOfTheRealClient(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "shared", "vectors.json"))
	if err != nil {
		t.Skip("skipping the real client's subagent ids: no vectors.json beside the repository")
	}
	var vectors struct {
		Claude map[string]string `json:"claude_subagent_id"`
		Codex  map[string]string `json:"codex_subagent_id"`
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	for provider, ids := range map[string]map[string]string{"claude": vectors.Claude, "codex": vectors.Codex} {
		if len(ids) == 0 {
			t.Errorf("no %s vectors", provider)
		}
		for key, want := range ids {
			if got := SubagentID(provider, key); got != want {
				t.Errorf("SubagentID(%q, %q) = %q, want %q", provider, key, got, want)
			}
		}
	}
}

func TestDeriveIDProperties(t *testing.T) {
	seen := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.String()).Draw(t, "parts")
		id := DeriveID(parts...)
		if len(id) != 24 || !IsID(id) || !cuid2.IsCuid(id) {
			t.Fatalf("DeriveID gave %q", id)
		}
		key, _ := json.Marshal(parts)
		if other, ok := seen[id]; ok && other != string(key) {
			t.Fatalf("%s and %s share the id %q", key, other, id)
		}
		seen[id] = string(key)
	})
}

func TestIDsSpreadOverTheAlphabet(t *testing.T) {
	var first [26]int
	var digit [36]int
	const n = 20000
	for i := range n {
		id := EnvelopeID("tag", "record", i)
		first[id[0]-'a']++
		for _, c := range id[1:] {
			digit[strings.IndexRune(base36, c)]++
		}
	}
	for i, c := range first {
		if c < n/26*8/10 || c > n/26*12/10 {
			t.Errorf("first letter %c stands %d times in %d", 'a'+i, c, n)
		}
	}
	for i, c := range digit {
		if c < n*23/36*9/10 || c > n*23/36*11/10 {
			t.Errorf("digit %c stands %d times", base36[i], c)
		}
	}
}

func TestIsID(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want bool
	}{
		{"tz4a98xxat96iws9zmbrgj3a", true},
		{"a1", true},
		{"z" + strings.Repeat("9", 31), true},
		{"z" + strings.Repeat("9", 32), false},
		{"", false},
		{"a", false},
		{"1a", false},
		{"A1", false},
		{"aB", false},
		{"a-1", false},
		{"a_1", false},
		{"aé", false},
		{"a1\n", false},
		{"a/", false},
		{"a:", false},
		{"a`", false},
		{"a{", false},
		{"toolu_01ABC", false},
		{"7d0b1f0e-4a39-4f6e-9c58-0f2f6c1d9a11", false},
	} {
		if got := IsID(tc.in); got != tc.want {
			t.Errorf("IsID(%q) = %v", tc.in, got)
		}
	}
	if id := cuid2.Generate(); !IsID(id) {
		t.Errorf("IsID refuses the library's %q", id)
	}
}

func BenchmarkEnvelopeID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		EnvelopeID("happyd-k2v9x0c4b7n1m5q8w3e6r0t2", "7d0b1f0e-4a39-4f6e-9c58-0f2f6c1d9a11", 3)
	}
}
