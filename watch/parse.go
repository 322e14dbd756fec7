package watch

import (
	"bytes"
	"crypto/sha256"
)

// A parser makes records of lines: one of most, none of junk, and the ones that are still whole of a line that interrupted writers spoilt.
type parser struct {
	path  string
	json  jsonScan
	skips Skips
	out   []Record // of the current line
}

// line returns the records of l, valid until the next call. The last one's Next is behind the line.
func (p *parser) line(l line) []Record {
	p.out = p.out[:0]
	switch {
	case l.junk:
		p.skips.Invalid++
		if l.nul {
			p.skips.NUL++
		}
	case l.over != nil:
		l.over.Path = p.path
		p.out = append(p.out, *l.over)
		p.skips.Oversize++
	default:
		p.raw(l)
	}
	if n := len(p.out); n > 0 {
		p.out[n-1].Next = l.next
	}
	return p.out
}

// raw parses the parts of a line between runs of NULs. JSON never holds a raw NUL, so that what stands on either side was
// written by different hands.
func (p *parser) raw(l line) {
	s, off := l.raw, l.off
	if bytes.IndexByte(s, 0) < 0 {
		p.part(s, off)
		return
	}
	p.skips.NUL++
	for len(s) > 0 {
		n := bytes.IndexByte(s, 0)
		if n < 0 {
			n = len(s)
		}
		p.part(s[:n], off)
		rest := bytes.TrimLeft(s[n:], "\x00")
		off += int64(len(s) - len(rest))
		s = rest
	}
}

// part parses bytes without NULs.
func (p *parser) part(s []byte, off int64) {
	t := trimLeft(s)
	off += int64(len(s) - len(t))
	if t = trimRight(t); len(t) == 0 {
		return
	}
	if t[0] == '{' && p.json.value(t) == complete && p.json.at == len(t) {
		p.emit(t, off)
		return
	}
	p.repair(t, off)
}

func (p *parser) emit(s []byte, off int64) {
	p.out = append(p.out, Record{
		Path: p.path, Offset: off, Next: off + int64(len(s)),
		Data: bytes.Clone(s), Size: int64(len(s)), Sum: sha256.Sum256(s),
	})
}

// repair finds the records in a line that is no object. A writer that was killed in the middle of a record leaves a stub without a newline,
// and the next one's record is glued to it: `{"a":"x{"type":…}`. Where it was killed between record and newline, two records share a line.
//
// An object inside a torn record must never pass for a record: so it is not enough that some suffix of the line is an object. Either
// the syntax breaks where that suffix begins, which only a glued stub explains, or nothing of the line is left over behind it. What is
// complete at the start of a line is a record, whatever follows.
func (p *parser) repair(s []byte, off int64) {
	const (
		tries = 32
		near  = 8 // `{"type"` is noticed at most a few bytes behind its brace: as a string's end followed by a letter
	)
	cut := false
	for range tries {
		if s[0] != '{' {
			p.suffix(s, 0, off)
			return
		}
		switch p.json.value(s) {
		case complete:
			rest := trimLeft(s[p.json.at:])
			if cut && len(rest) > 0 && rest[0] != '{' {
				p.skips.Invalid++
				return
			}
			p.emit(s[:p.json.at], off)
			if cut {
				p.skips.Glued++
			}
			if len(rest) == 0 {
				return
			}
			off += int64(len(s) - len(rest))
			s, cut = rest, false
		case broken:
			at := objectBefore(s, p.json.at, near)
			if at <= 0 {
				p.suffix(s, p.json.at, off)
				return
			}
			s, off, cut = s[at:], off+int64(at), true
		case short:
			// The stub ended where a value was due, so that the record became that value: only closing brackets are missing. An
			// inner object of a torn record looks the same; a record starts with the key the stub starts with.
			at := p.json.lastOpen
			if p.json.lastEnd == len(s) && s[at] == '{' && at > 0 && bytes.Equal(firstKey(s), firstKey(s[at:])) {
				p.emit(s[at:], off+int64(at))
				p.skips.Glued++
				return
			}
			p.skips.Invalid++
			return
		}
	}
	p.skips.Invalid++
}

// suffix looks behind from for the first object that reaches to the end of s, and gives up when it has scanned s a few times over.
func (p *parser) suffix(s []byte, from int, off int64) {
	budget := 4*len(s) + 4096
	for at := from; s[0] != '[' && budget > 0; at++ {
		i := bytes.IndexByte(s[at:], '{')
		if i < 0 {
			break
		}
		if at += i; at == 0 || !isObject(s[at:]) {
			continue
		}
		v := p.json.value(s[at:])
		if v == complete && at+p.json.at == len(s) {
			p.emit(s[at:], off+int64(at))
			p.skips.Glued++
			return
		}
		budget -= p.json.at + 64
	}
	p.skips.Invalid++
}

// objectBefore returns the last position in the near bytes up to at where an object seems to begin, or -1.
func objectBefore(s []byte, at, near int) int {
	for i := min(at, len(s)-1); i >= max(0, at-near); i-- {
		if s[i] == '{' && isObject(s[i:]) {
			return i
		}
	}
	return -1
}

// isObject says whether s, which starts with a brace, goes on with a key.
func isObject(s []byte) bool {
	i := skipSpace(s, 1)
	return i < len(s) && s[i] == '"'
}

// firstKey returns the raw first key of an object, quotes included.
func firstKey(s []byte) []byte {
	i := skipSpace(s, 1)
	if i >= len(s) || s[i] != '"' {
		return nil
	}
	end, v := scanString(s, i)
	if v != complete {
		return nil
	}
	return s[i:end]
}
