package watch

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// validByScan is json.Valid by way of jsonScan.
func validByScan(s []byte) bool {
	var j jsonScan
	return j.value(s) == complete && skipSpace(s, j.at) == len(s)
}

func TestScanAgreesWithEncodingJSON(t *testing.T) {
	for _, s := range []string{
		``, ` `, `{}`, `[]`, `{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{,}`, `[1,2]`, `[1,]`, `[,1]`, `{"a":[{"b":[]}]}`, `{]`, `[}`,
		`0`, `-0`, `01`, `-`, `1.`, `1.5`, `1e`, `1e+`, `1e-7`, `1E5`, `.5`, `+1`, `tru`, `true`, `truex`, `nul`, `null`, `false`,
		`""`, `"`, `"\`, `"\u12`, `"\u12g4"`, `"\u00e9"`, `"\q"`, "\"\x01\"", "\"\x7f\xff\"", `"abcdefgh"`, `"abcdefg\"h"`, "{\"a\":\"\x00\"}",
		" {\t\"a\" : 1 \r\n} ", `{"a":1}{"b":2}`, `{"a":1} x`, strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		strings.Repeat("[", 10001) + strings.Repeat("]", 10001), strings.Repeat("[", 10000) + strings.Repeat("]", 10000),
	} {
		if got, want := validByScan([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("%.40q: scan says %v, encoding/json %v", s, got, want)
		}
	}
	piece := rapid.SampledFrom([]string{`{`, `}`, `[`, `]`, `"`, `:`, `,`, `\`, `\u00`, `a`, `1`, `-`, `.`, `e`, `true`, `null`, ` `, "\x00", "é", `{"a":`, `"b"`, "\n"})
	rapid.Check(t, func(t *rapid.T) {
		s := []byte(strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), ""))
		if got, want := validByScan(s), json.Valid(s); got != want {
			t.Fatalf("%q: scan says %v, encoding/json %v", s, got, want)
		}
	})
}

func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e-3,"x\u00e9\n",true,false,null,{}]}`))
	f.Add([]byte(`{"a":"x{"type":1}`))
	f.Fuzz(func(t *testing.T, s []byte) {
		if got, want := validByScan(s), json.Valid(s); got != want {
			t.Fatalf("%q: scan says %v, encoding/json %v", s, got, want)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	s := []byte(`{"type":"user","message":{"content":"` + strings.Repeat(`some text with \"quotes\" and\n lines `, 40) + `"},"n":[1,2,3]}`)
	b.SetBytes(int64(len(s)))
	var j jsonScan
	for b.Loop() {
		j.value(s)
	}
}
