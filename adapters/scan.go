package adapters

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// ScanObject walks the top level of one valid JSON object and calls fn with each key and its raw value, in order. It is the
// cheap first pass: it decodes nothing and allocates nothing for values. Malformed input ends the walk early; it never panics.
// fn returns false to stop. Keys with escapes are passed as written.
func ScanObject(data []byte, fn func(key, raw []byte) bool) { WalkObject(data, nil, fn) }

// WalkObject is ScanObject with a look ahead: peek is called before a value is walked over, with all of data from the value's
// first byte on; it returns false to stop. That is how the largest values are never looked at.
func WalkObject(data []byte, peek, fn func(key, raw []byte) bool) {
	i := skipSpace(data, 0)
	if i >= len(data) || data[i] != '{' {
		return
	}
	i++
	for {
		i = skipSpace(data, i)
		if i < len(data) && data[i] == ',' {
			i = skipSpace(data, i+1)
		}
		if i >= len(data) || data[i] != '"' {
			return
		}
		end := stringEnd(data, i)
		if end < 0 {
			return
		}
		key := data[i+1 : end-1]
		i = skipSpace(data, end)
		if i >= len(data) || data[i] != ':' {
			return
		}
		i = skipSpace(data, i+1)
		if peek != nil && !peek(key, data[i:]) {
			return
		}
		end = valueEnd(data, i)
		if end < 0 {
			return
		}
		if !fn(key, data[i:end]) {
			return
		}
		i = end
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// stringEnd returns the index behind the closing quote of the string that starts at i, or -1.
func stringEnd(b []byte, i int) int {
	for j := i + 1; j < len(b); {
		k := bytes.IndexByte(b[j:], '"')
		if k < 0 {
			return -1
		}
		k += j
		// An odd number of backslashes in front escapes the quote.
		n := 0
		for p := k - 1; p > i && b[p] == '\\'; p-- {
			n++
		}
		if n%2 == 0 {
			return k + 1
		}
		j = k + 1
	}
	return -1
}

func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		depth := 0
		for j := i; j < len(b); j++ {
			switch b[j] {
			case '"':
				e := stringEnd(b, j)
				if e < 0 {
					return -1
				}
				j = e - 1
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return j + 1
				}
			}
		}
		return -1
	default:
		j := i
		for j < len(b) && b[j] != ',' && b[j] != '}' && b[j] != ']' && b[j] > ' ' {
			j++
		}
		if j == i {
			return -1
		}
		return j
	}
}

// String decodes a raw JSON string; anything else is "". Lone surrogates and invalid UTF-8 become U+FFFD.
func String(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return ""
	}
	if in := raw[1 : len(raw)-1]; bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return string(in)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Bool reads a raw JSON value as a flag; anything but true is false.
func Bool(raw []byte) bool { return string(raw) == "true" }

// Int reads a raw JSON number; anything else is 0.
func Int(raw []byte) int64 {
	var n json.Number
	if len(raw) == 0 || raw[0] == '"' || json.Unmarshal(raw, &n) != nil {
		return 0
	}
	if v, err := n.Int64(); err == nil {
		return v
	}
	f, err := n.Float64()
	if err != nil || f != f || f > 1<<62 || f < -(1<<62) {
		return 0
	}
	return int64(f)
}

// Fields returns the raw values of the named keys of one object, as ScanObject finds them; of duplicates the last wins.
// The result has one entry per name, nil where it is missing or null.
func Fields(data []byte, names ...string) [][]byte {
	out := make([][]byte, len(names))
	ScanObject(data, func(key, raw []byte) bool {
		for i, n := range names {
			if string(key) == n {
				out[i] = raw
				if string(raw) == "null" {
					out[i] = nil
				}
				break
			}
		}
		return true
	})
	return out
}

// Elements calls fn with each raw element of a JSON array; other values yield nothing.
func Elements(raw []byte, fn func(i int, raw []byte) bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return
	}
	i++
	for n := 0; ; n++ {
		i = skipSpace(raw, i)
		if i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
		if i >= len(raw) || raw[i] == ']' {
			return
		}
		end := valueEnd(raw, i)
		if end < 0 || !fn(n, raw[i:end]) {
			return
		}
		i = end
	}
}
