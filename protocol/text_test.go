package protocol

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCleanText(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"clean", "héllo\x00\n\u2028 😀\uFFFD", "héllo\x00\n\u2028 😀\uFFFD"},
		{"one bad byte", "a\xffb", "a\uFFFDb"},
		{"two bad bytes", "a\xff\xfeb", "a\uFFFD\uFFFDb"},
		{"cut off at the end", "a\xe2\x82", "a\uFFFD\uFFFD"},
		{"encoded surrogate", "a\xed\xa0\xbdb", "a\uFFFDb"},
		{"encoded surrogate pair", "\xed\xa0\xbd\xed\xb8\x80", "\uFFFD\uFFFD"},
		{"cut surrogate", "\xed\xa0", "\uFFFD\uFFFD"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := CleanText(tc.in); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCleanJSON(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", `{}`},
		{"white space", " \n", `{}`},
		{"clean", `{"a": "\ud83d\ude00 \u00e9 \\ud83d <>"}`, `{"a": "\ud83d\ude00 \u00e9 \\ud83d <>"}`},
		{"lone high", `{"a":"\ud83d"}`, `{"a":"\ufffd"}`},
		{"lone high in capitals", `{"a":"\uD83Dx"}`, `{"a":"\ufffdx"}`},
		{"lone low", `{"a":"\ude00"}`, `{"a":"\ufffd"}`},
		{"low before high", `{"a":"\ude00\ud83d"}`, `{"a":"\ufffd\ufffd"}`},
		{"high, then a pair", `{"a":"\ud83d\ud83d\ude00"}`, `{"a":"\ufffd\ud83d\ude00"}`},
		{"high, then another escape", `{"a":"\ud83d\n\ud83d\u0041"}`, `{"a":"\ufffd\n\ufffd\u0041"}`},
		{"behind a backslash", `{"a":"\\\ud83d"}`, `{"a":"\\\ufffd"}`},
		{"in a key", `{"\udc00":1}`, `{"\ufffd":1}`},
		{"bad byte", "{\"a\":\"\xff\"}", "{\"a\":\"\uFFFD\"}"},
		{"null", `null`, `{"value":null}`},
		{"string", `"a\ud83d"`, `{"value":"a\ufffd"}`},
		{"list", `[1,2]`, `{"value":[1,2]}`},
		{"number", ` 12 `, `{"value": 12 }`},
		{"not JSON", `rm -rf "x"`, `{"value":"rm -rf \"x\""}`},
		{"cut off", "{\"a\":\"\xff", "{\"value\":\"{\\\"a\\\":\\\"\uFFFD\"}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := CleanJSON(json.RawMessage(tc.in)); string(got) != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestCleanJSONCopiesOnlyWhatIsBroken(t *testing.T) {
	clean := json.RawMessage(`{"a":"\ud83d\ude00"}`)
	if got := CleanJSON(clean); &got[0] != &clean[0] {
		t.Error("a clean object is copied")
	}
	broken := json.RawMessage(`{"a":"\ud83d"}`)
	CleanJSON(broken)
	if string(broken) != `{"a":"\ud83d"}` {
		t.Error("the argument is written to")
	}
	if allocs := testing.AllocsPerRun(100, func() { CleanJSON(clean) }); allocs > 0 {
		t.Errorf("a clean object costs %v allocations", allocs)
	}
}

func TestTruncate(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		max      int
		want     string
	}{
		{"empty", "", 5, ""},
		{"no room", "abc", 0, ""},
		{"negative", "abc", -1, ""},
		{"room for the ellipsis alone", "abc", 1, "…"},
		{"one character", "a", 1, "a"},
		{"fits exactly", "abcde", 5, "abcde"},
		{"one too many", "abcdef", 5, "abcd…"},
		{"white space collapses", "  a \t\n b\u00a0\u2028c  ", 10, "a b c"},
		{"trailing white space needs no ellipsis", "abc    ", 3, "abc"},
		{"only white space", " \n\t ", 3, ""},
		{"no space before the ellipsis", "abc def", 5, "abc…"},
		{"space at the cut", "ab cdef", 4, "ab…"},
		{"runes, not bytes", "äöüß€😀", 5, "äöüß…"},
		{"exactly runes", "äöüß😀", 5, "äöüß😀"},
		{"bad bytes", "a\xffb\xed\xa0\x80c", 10, "a\uFFFDb\uFFFDc"},
		{"no joiner before the ellipsis", "a👩\u200d💻bc", 4, "a👩…"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Truncate(tc.in, tc.max); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// genMess draws bytes that are often broken text.
var genMess = rapid.Custom(func(t *rapid.T) string {
	parts := rapid.SliceOf(rapid.OneOf(
		rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune(" \n\ta"))),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Just("\xed\xa0\xbd"),
	)).Draw(t, "parts")
	return strings.Join(parts, "")
})

func TestTextProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genMess.Draw(t, "s")
		clean := CleanText(s)
		if !utf8.ValidString(clean) || CleanText(clean) != clean {
			t.Fatalf("CleanText gave %q", clean)
		}
		if utf8.ValidString(s) && clean != s {
			t.Fatalf("clean text changed: %q", clean)
		}
		max := rapid.IntRange(0, 100).Draw(t, "max")
		short := Truncate(s, max)
		if !utf8.ValidString(short) || utf8.RuneCountInString(short) > max {
			t.Fatalf("Truncate gave %q", short)
		}
		if Truncate(short, max) != short {
			t.Fatalf("Truncate is not stable: %q, then %q", short, Truncate(short, max))
		}
		line := strings.Join(strings.Fields(clean), " ")
		if utf8.RuneCountInString(line) <= max && short != line {
			t.Fatalf("Truncate cut %q to %q", line, short)
		}
		if !strings.HasPrefix(line, strings.TrimSuffix(short, "…")) {
			t.Fatalf("Truncate changed %q to %q", line, short)
		}
		fixed := CleanJSON(json.RawMessage(s))
		if err := validArgs(fixed); err != nil {
			t.Fatalf("CleanJSON gave %q: %v", fixed, err)
		}
	})
}

// What CleanJSON makes of any JSON is an object that reads as encoding/json
// reads the original, lone surrogates included.
func TestCleanJSONKeepsTheMeaning(t *testing.T) {
	text := rapid.StringOf(rapid.RuneFrom([]rune(`\ud83eDE0nfx`)))
	rapid.Check(t, func(t *rapid.T) {
		raw := json.RawMessage(`{"a":"` + text.Draw(t, "text") + `"}`)
		if !json.Valid(raw) {
			return
		}
		var before, after map[string]string
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		fixed := CleanJSON(raw)
		if err := json.Unmarshal(fixed, &after); err != nil {
			t.Fatal(err)
		}
		if before["a"] != after["a"] {
			t.Fatalf("%s became %s", raw, fixed)
		}
		if string(CleanJSON(fixed)) != string(fixed) {
			t.Fatalf("%s is not clean", fixed)
		}
	})
}

func BenchmarkCleanJSON(b *testing.B) {
	raw := json.RawMessage(`{"command":"` + strings.Repeat(`echo \u00e9\n`, 400) + `"}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		CleanJSON(raw)
	}
}
