package protocol

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CleanText returns s with every invalid UTF-8 byte, and every surrogate that
// was encoded as if it were a character, replaced by U+FFFD. Everything else
// stays byte for byte; a clean string is returned as it is.
func CleanText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = surrogateLen(s)
			b.WriteString("\uFFFD")
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// surrogateLen is 3 when s begins with an encoded surrogate, else 1.
func surrogateLen(s string) int {
	if len(s) >= 3 && s[0] == 0xED && s[1]&0xE0 == 0xA0 && s[2]&0xC0 == 0x80 {
		return 3
	}
	return 1
}

// CleanJSON makes raw fit to be a tool call's args: an object without broken
// text. A value of another kind becomes {"value": raw}, nothing at all becomes
// {}, and what is not JSON becomes {"value": "<the bytes as text>"}. Lone
// surrogate escapes turn into \ufffd, invalid bytes into U+FFFD. When nothing is
// wrong, raw itself is returned.
func CleanJSON(raw json.RawMessage) json.RawMessage {
	first := firstByte(raw)
	if first == 0 {
		return json.RawMessage("{}")
	}
	if !json.Valid(raw) {
		return append(appendKey(nil, `{"value":`, string(raw)), '}')
	}
	if !utf8.Valid(raw) {
		raw = json.RawMessage(CleanText(string(raw)))
	}
	raw = fixEscapes(raw)
	if first != '{' {
		out := make(json.RawMessage, 0, len(raw)+len(`{"value":}`))
		out = append(append(out, `{"value":`...), raw...)
		return append(out, '}')
	}
	return raw
}

// fixEscapes replaces \uD800 to \uDFFF escapes that are not one half of a pair.
// It copies only when it finds one. A backslash can stand only in a string.
func fixEscapes(raw []byte) []byte {
	out := raw
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' || !isSurrogate(raw, i) {
			continue
		}
		if isHighSurrogate(raw[i+2]) && i+6 < len(raw) && raw[i+5] == '\\' && raw[i+6] == 'u' &&
			isSurrogate(raw, i+6) && !isHighSurrogate(raw[i+8]) {
			i += 10
			continue
		}
		if &out[0] == &raw[0] {
			out = append([]byte(nil), raw...)
		}
		copy(out[i+1:], "fffd")
	}
	return out
}

// isSurrogate reports whether the escape whose 'u' stands at raw[u] is one of
// \uD800 to \uDFFF.
func isSurrogate(raw []byte, u int) bool {
	return u+4 < len(raw) && raw[u+1]|0x20 == 'd' && (raw[u+2] == '8' || raw[u+2] == '9' || (raw[u+2]|0x20 >= 'a' && raw[u+2]|0x20 <= 'f'))
}

// isHighSurrogate tells the first half of a pair by the second of its four hex
// digits.
func isHighSurrogate(digit byte) bool {
	return digit == '8' || digit == '9' || digit|0x20 == 'a' || digit|0x20 == 'b'
}

// Truncate makes a title of s: one line, runs of white space turned into one
// space, none at the ends, and at most max characters, the last of which is an
// ellipsis when something was cut. Broken text is cleaned as CleanText does.
// It looks at no more of s than it needs.
func Truncate(s string, max int) string {
	if max <= 0 {
		return ""
	}
	var b strings.Builder
	end, count, space := 0, 0, false // end: bytes that fit beside an ellipsis
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = surrogateLen(s)
		}
		s = s[n:]
		if unicode.IsSpace(r) {
			space = count > 0
			continue
		}
		need := 1
		if space {
			need = 2
		}
		if count+need > max {
			// A joiner left at the end would glue the ellipsis to its emoji.
			return strings.TrimRight(b.String()[:end], " \u200d") + "…"
		}
		if space {
			b.WriteByte(' ')
			count++
			if count < max {
				end = b.Len()
			}
			space = false
		}
		b.WriteRune(r)
		count++
		if count < max {
			end = b.Len()
		}
	}
	return b.String()
}
