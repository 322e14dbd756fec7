package adapters

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestScanObject(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string // key=raw
	}{
		{"plain", `{"a":1,"b":"x","c":[1,{"d":"]}"}],"e":{"f":null}}`, []string{`a=1`, `b="x"`, `c=[1,{"d":"]}"}]`, `e={"f":null}`}},
		{"spaces", " { \"a\" :\t1 ,\r\n \"b\" : true } ", []string{`a=1`, `b=true`}},
		{"empty", `{}`, nil},
		{"escaped quotes", `{"a":"x\\\"y\\\\","b":1}`, []string{`a="x\\\"y\\\\"`, `b=1`}},
		{"duplicate keys", `{"a":1,"a":2}`, []string{`a=1`, `a=2`}},
		{"no object", `[1,2]`, nil},
		{"cut in a string", `{"a":1,"b":"x`, []string{`a=1`}},
		{"cut in an object", `{"a":1,"b":{"c":[1`, []string{`a=1`}},
		{"no value", `{"a":}`, nil},
		{"no colon", `{"a" 1}`, nil},
		{"nothing", ``, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			ScanObject([]byte(tt.in), func(k, v []byte) bool {
				got = append(got, string(k)+"="+string(v))
				return true
			})
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	for in, want := range map[string]string{
		`"plain"`: "plain", `"a\nb"`: "a\nb", `"\ud83d"`: "\uFFFD", `"\ud83d\ude00"`: "\U0001F600", "\"\xff\"": "\uFFFD",
		`5`: "", `null`: "", `"open`: "", `[]`: "", ``: "", `"`: "",
	} {
		if got := String([]byte(in)); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestInt(t *testing.T) {
	for in, want := range map[string]int64{
		"5": 5, "-7": -7, "1.9": 1, "1e3": 1000, "1e400": 0, `"5"`: 0, "true": 0, "": 0, "[1]": 0, "9223372036854775807": 9223372036854775807, "1e19": 0,
	} {
		if got := Int([]byte(in)); got != want {
			t.Errorf("Int(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestFieldsTakesTheLastOfDuplicates(t *testing.T) {
	v := Fields([]byte(`{"a":1,"b":2,"a":3,"b":null}`), "b", "a", "c")
	if v[0] != nil || string(v[1]) != "3" || v[2] != nil {
		t.Errorf("got %q", v)
	}
}

// FuzzScan compares the walk with encoding/json wherever that accepts the input, and lets it see anything else.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":{"b":[1,2,{"c":"\"]}"}]},"d":"\\","e":-1.5e3}`, ` {"":"\u00e9"} `, `[1,"x",{"y":[]}]`, `{"a":1`, `{"a" "b"}`, `[,]`, `{"a":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var keys []string
		vals := map[string]json.RawMessage{}
		ScanObject(data, func(k, v []byte) bool {
			keys = append(keys, string(k))
			vals[string(k)] = append([]byte(nil), v...)
			String(v)
			Int(v)
			return true
		})
		var elems []json.RawMessage
		Elements(data, func(_ int, v []byte) bool {
			elems = append(elems, append([]byte(nil), v...))
			return true
		})
		if !json.Valid(data) {
			return
		}
		switch first := bytes.TrimLeft(data, " \t\r\n"); first[0] {
		case '{':
			want := map[string]json.RawMessage{}
			if json.Unmarshal(data, &want) != nil {
				return
			}
			plain := map[string]json.RawMessage{}
			for _, k := range keys {
				var decoded string
				if json.Unmarshal([]byte(`"`+k+`"`), &decoded) != nil {
					t.Fatalf("key %q is no JSON string", k)
				}
				plain[decoded] = vals[k]
			}
			if strings.Contains(string(data), `\`) && len(plain) != len(keys) {
				return // one key written in two ways: which one is last is told apart by the decoder alone
			}
			same(t, want, plain)
		case '[':
			var want []json.RawMessage
			if json.Unmarshal(data, &want) != nil {
				return
			}
			if len(want) != len(elems) {
				t.Fatalf("%d elements, want %d", len(elems), len(want))
			}
			for i := range want {
				if !bytes.Equal(bytes.TrimSpace(want[i]), bytes.TrimSpace(elems[i])) {
					t.Fatalf("element %d is %q, want %q", i, elems[i], want[i])
				}
			}
		case '"':
			var want string
			if json.Unmarshal(data, &want) == nil && String(bytes.TrimSpace(data)) != strings.ToValidUTF8(want, "\uFFFD") {
				t.Fatalf("String(%q) = %q, want %q", data, String(bytes.TrimSpace(data)), want)
			}
		}
	})
}

func same(t *testing.T, want, got map[string]json.RawMessage) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d keys, want %d", len(got), len(want))
	}
	for k, w := range want {
		if !bytes.Equal(bytes.TrimSpace(w), bytes.TrimSpace(got[k])) {
			t.Fatalf("key %q is %q, want %q", k, got[k], w)
		}
	}
}

func BenchmarkScanObject(b *testing.B) {
	line := []byte(`{"parentUuid":"x","isSidechain":false,"attachment":{"type":"prompt_snapshot","systemPrompt":["` + strings.Repeat(`A long line of text with \"quotes\" and\nbreaks. `, 1000) + `"]},"type":"attachment","uuid":"y"}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		n := 0
		ScanObject(line, func(_, _ []byte) bool { n++; return true })
		if n != 5 {
			b.Fatal(n)
		}
	}
}
