package watch

import (
	"encoding/binary"
	"math/bits"
)

// A verdict is how a scan of a JSON value ended.
type verdict int

const (
	// complete: a whole value ends before result.at; what follows was not looked at.
	complete verdict = iota
	// broken: the byte at result.at cannot stand there.
	broken
	// short: the bytes end inside the value.
	short
)

// maxDepth is the nesting that encoding/json accepts, too.
const maxDepth = 10000

// A jsonScan checks JSON syntax, by the same grammar as json.Valid. Where a line is not valid it tells what the repair of glued lines
// needs and json.Valid does not tell: where the syntax breaks, and where the container began that ended last.
type jsonScan struct {
	at       int   // see verdict
	lastOpen int   // where the container that was closed last began
	lastEnd  int   // the index behind it; 0 if none was closed
	open     []int // positions of the open containers
}

// value scans one value at the start of s, blanks before it allowed.
func (j *jsonScan) value(s []byte) verdict {
	j.open = j.open[:0]
	j.lastOpen, j.lastEnd = 0, 0
	i := skipSpace(s, 0)
	for {
		// A value begins at i.
		if i >= len(s) {
			return j.end(i, short)
		}
		var v verdict
		switch c := s[i]; {
		case c == '{' || c == '[':
			if len(j.open) >= maxDepth {
				return j.end(i, broken)
			}
			j.open = append(j.open, i)
			i = skipSpace(s, i+1)
			if i >= len(s) {
				return j.end(i, short)
			}
			if s[i] == c+2 { // '}' is '{'+2, ']' is '['+2: an empty container
				i = j.pop(i)
				break
			}
			if c == '{' {
				if i, v = scanKey(s, i); v != complete {
					return j.end(i, v)
				}
			}
			continue
		case c == '"':
			i, v = scanString(s, i)
		case c == '-' || c >= '0' && c <= '9':
			i, v = scanNumber(s, i)
		case c == 't':
			i, v = scanWord(s, i, "true")
		case c == 'f':
			i, v = scanWord(s, i, "false")
		case c == 'n':
			i, v = scanWord(s, i, "null")
		default:
			v = broken
		}
		if v != complete {
			return j.end(i, v)
		}
		// A value ended before i: close what it completes, or go to the next one.
		for {
			if len(j.open) == 0 {
				return j.end(i, complete)
			}
			if i = skipSpace(s, i); i >= len(s) {
				return j.end(i, short)
			}
			opener := s[j.open[len(j.open)-1]]
			if s[i] == opener+2 {
				i = j.pop(i)
				continue
			}
			if s[i] != ',' {
				return j.end(i, broken)
			}
			i = skipSpace(s, i+1)
			if opener == '{' {
				if i, v = scanKey(s, i); v != complete {
					return j.end(i, v)
				}
			}
			break
		}
	}
}

func (j *jsonScan) end(at int, v verdict) verdict {
	j.at = at
	return v
}

// pop closes the innermost container, whose closing byte is at i, and returns the index behind it.
func (j *jsonScan) pop(i int) int {
	last := len(j.open) - 1
	j.lastOpen, j.lastEnd = j.open[last], i+1
	j.open = j.open[:last]
	return i + 1
}

// scanKey scans a member's name and colon at i and returns where its value begins.
func scanKey(s []byte, i int) (int, verdict) {
	if i >= len(s) {
		return i, short
	}
	if s[i] != '"' {
		return i, broken
	}
	i, v := scanString(s, i)
	if v != complete {
		return i, v
	}
	if i = skipSpace(s, i); i >= len(s) {
		return i, short
	}
	if s[i] != ':' {
		return i, broken
	}
	return skipSpace(s, i+1), complete
}

// scanString scans a string whose opening quote is at i and returns the index behind its closing one. Bytes that are not UTF-8
// pass, as they do in encoding/json.
func scanString(s []byte, i int) (int, verdict) {
	for i++; ; {
		// Eight bytes at a time up to a quote, a backslash or a control character: transcripts are mostly long strings.
		for i+8 <= len(s) {
			const lo, hi = 0x0101010101010101, 0x8080808080808080
			x := binary.LittleEndian.Uint64(s[i:])
			q, b := x^(lo*'"'), x^(lo*'\\')
			m := ((q - lo) &^ q) | ((b - lo) &^ b) | ((x - lo*0x20) &^ x)
			if m &= hi; m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		if i >= len(s) {
			return i, short
		}
		switch c := s[i]; {
		case c == '"':
			return i + 1, complete
		case c < 0x20:
			return i, broken
		case c != '\\':
			i++
		default:
			i++
			if i >= len(s) {
				return i, short
			}
			switch s[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i++
			case 'u':
				for k := 1; k <= 4; k++ {
					if i+k >= len(s) {
						return len(s), short
					}
					if !isHex(s[i+k]) {
						return i + k, broken
					}
				}
				i += 5
			default:
				return i, broken
			}
		}
	}
}

func scanNumber(s []byte, i int) (int, verdict) {
	if s[i] == '-' {
		i++
	}
	if i < len(s) && s[i] == '0' {
		i++
	} else {
		var v verdict
		if i, v = scanDigits(s, i); v != complete {
			return i, v
		}
	}
	if i < len(s) && s[i] == '.' {
		var v verdict
		if i, v = scanDigits(s, i+1); v != complete {
			return i, v
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		if i++; i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		return scanDigits(s, i)
	}
	return i, complete
}

// scanDigits scans at least one digit.
func scanDigits(s []byte, i int) (int, verdict) {
	if i >= len(s) {
		return i, short
	}
	if s[i] < '0' || s[i] > '9' {
		return i, broken
	}
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i, complete
}

func scanWord(s []byte, i int, word string) (int, verdict) {
	for k := range len(word) {
		if i+k >= len(s) {
			return len(s), short
		}
		if s[i+k] != word[k] {
			return i + k, broken
		}
	}
	return i + len(word), complete
}

func skipSpace(s []byte, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
