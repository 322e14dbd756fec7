package watch

import (
	"bytes"
	"crypto/sha256"
	"io"
)

// Fingerprint lengths: enough to tell two logs apart (the first line names the session, the last ones carry ids and times), little enough
// to check at each read.
const (
	headFP = 1 << 10
	tailFP = 4 << 10
)

// A line is one line of a file. Exactly one of raw and over is set, unless junk says that it was too long and no object.
type line struct {
	raw  []byte  // without the newline; valid until the next call of next
	over *Record // an oversize line, without Path
	junk bool
	nul  bool  // an oversize line that ended at a NUL
	off  int64 // of the first byte
	next int64 // behind the newline
}

// A lineReader cuts a stream into lines. It holds one line of at most max bytes, and streams longer ones. The bytes before the current line
// are kept for the fingerprint, as many as that needs.
//
// Where a line ends depends on the bytes from its start on and on nothing else, so that reading in several goes gives the same lines.
type lineReader struct {
	r     io.Reader
	buf   []byte // buf[:end] is filled
	start int    // of the current line
	scan  int    // no newline in buf[start:scan]
	end   int
	off   int64 // of buf[start] in the file
	max   int   // the longest line that is kept whole
	eof   bool
	err   error // what ended the stream, if not its end

	partial int64  // set by next at the end: the length of the last, incomplete line
	held    []byte // the fingerprint's tail, if the incomplete line was streamed past
}

// newLineReader reads r, which continues a file at off behind the bytes before. About size bytes are expected.
func newLineReader(r io.Reader, before []byte, off, size, max int64) *lineReader {
	const most = 256 << 10
	buf := make([]byte, len(before)+int(min(size+512, most)))
	n := copy(buf, before)
	return &lineReader{r: r, buf: buf, start: n, scan: n, end: n, off: off, max: int(max)}
}

// before returns up to tailFP bytes before the current line.
func (lr *lineReader) before() []byte {
	if lr.held != nil {
		return lr.held
	}
	return lr.buf[max(0, lr.start-tailFP):lr.start]
}

// next returns the next whole line; false at the end of the stream or on an error.
func (lr *lineReader) next() (line, bool) {
	for {
		// Only the first max+1 bytes matter here: what was read by chance must not decide.
		lim := min(lr.end, lr.start+lr.max+1)
		if i := bytes.IndexByte(lr.buf[lr.scan:lim], '\n'); i >= 0 {
			return lr.cut(lr.scan+i, lr.scan+i+1), true
		}
		lr.scan = lim
		if lim-lr.start > lr.max {
			// A run of NULs may be as long as a disk block that was never written. It ends the line, so that what follows is not lost.
			if i := bytes.LastIndexByte(lr.buf[lr.start:lim], 0); i >= 0 {
				return lr.cut(lr.start+i+1, lr.start+i+1), true
			}
			return lr.oversize()
		}
		if !lr.fill() {
			lr.partial = int64(lr.end - lr.start)
			return line{}, false
		}
	}
}

// cut returns buf[start:to] as a line and goes on at next.
func (lr *lineReader) cut(to, next int) line {
	l := line{raw: lr.buf[lr.start:to], off: lr.off, next: lr.off + int64(next-lr.start)}
	lr.start, lr.scan, lr.off = next, next, l.next
	return l
}

// fill reads more behind buf[:end]; false at the end.
func (lr *lineReader) fill() bool {
	if lr.eof {
		return false
	}
	if lr.end == len(lr.buf) {
		const spare = 64 << 10
		limit := tailFP + lr.max + spare
		if drop := lr.start - tailFP; drop > 0 && (drop >= len(lr.buf)/2 || len(lr.buf) >= limit) {
			copy(lr.buf, lr.buf[drop:lr.end])
			lr.start, lr.scan, lr.end = lr.start-drop, lr.scan-drop, lr.end-drop
		} else {
			grown := make([]byte, max(len(lr.buf)+spare, min(2*len(lr.buf), limit)))
			copy(grown, lr.buf[:lr.end])
			lr.buf = grown
		}
	}
	for range 100 {
		n, err := lr.r.Read(lr.buf[lr.end:])
		lr.end += n
		if err != nil {
			lr.eof = true
			if err != io.EOF {
				lr.err = err
			}
			return n > 0
		}
		if n > 0 {
			return true
		}
	}
	lr.eof, lr.err = true, io.ErrNoProgress
	return false
}

// oversize streams the line at start, of which more than max bytes are there without a NUL. At the end of the stream the line is
// incomplete, and the reader's offset stays at its start.
func (lr *lineReader) oversize() (line, bool) {
	l := line{off: lr.off}
	before := bytes.Clone(lr.before())
	var o overline
	for stop := -1; ; {
		chunk := lr.buf[lr.start:lr.end]
		if stop = bytes.IndexAny(chunk, "\n\x00"); stop >= 0 {
			chunk = chunk[:stop]
		}
		o.add(chunk)
		lr.start += len(chunk)
		lr.scan = lr.start
		l.next += int64(len(chunk))
		if stop >= 0 {
			l.nul = lr.buf[lr.start] == 0
			lr.start++
			lr.scan = lr.start
			break
		}
		if !lr.fill() {
			lr.partial, lr.held = l.next, before
			return line{}, false
		}
	}
	l.next += l.off + 1
	lr.off = l.next
	if l.over = o.record(l.off, l.next); l.over == nil || l.nul {
		l.over, l.junk = nil, true
	}
	return l, true
}

// An overline gathers what is kept of an oversize line.
type overline struct {
	lead int64 // blanks before the record
	size int64
	head []byte
	tail []byte // the last bytes, which are not in sum yet: blanks at the end must not get there
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func (o *overline) add(p []byte) {
	if o.sum == nil {
		o.sum = sha256.New()
		t := trimLeft(p)
		o.lead = int64(len(p) - len(t))
		p = t
	}
	if n := min(HeadBytes-len(o.head), len(p)); n > 0 {
		o.head = append(o.head, p[:n]...)
	}
	o.size += int64(len(p))
	const keep = 2 * TailBytes // so that TailBytes are left when blanks are cut off
	if len(p) >= keep {
		o.sum.Write(o.tail)
		o.sum.Write(p[:len(p)-keep])
		o.tail = append(o.tail[:0], p[len(p)-keep:]...)
		return
	}
	if n := len(o.tail) + len(p) - 2*keep; n > 0 {
		o.sum.Write(o.tail[:n])
		o.tail = append(o.tail[:0], o.tail[n:]...)
	}
	o.tail = append(o.tail, p...)
}

// record returns the finished record, nil if it is no object.
func (o *overline) record(off, next int64) *Record {
	t := trimRight(o.tail)
	o.size -= int64(len(o.tail) - len(t))
	if o.size == 0 || o.head[0] != '{' || len(t) == 0 || t[len(t)-1] != '}' {
		return nil
	}
	o.sum.Write(t)
	r := &Record{Offset: off + o.lead, Next: next, Size: o.size, Oversize: true}
	r.Data = bytes.Clone(o.head[:min(int64(len(o.head)), o.size)])
	r.Tail = bytes.Clone(t[max(0, len(t)-TailBytes):])
	o.sum.Sum(r.Sum[:0])
	return r
}

var bom = []byte("\xef\xbb\xbf")

// trimLeft cuts blanks and byte order marks off the front.
func trimLeft(s []byte) []byte {
	for {
		if len(s) > 0 && isSpace(s[0]) {
			s = s[1:]
		} else if bytes.HasPrefix(s, bom) {
			s = s[len(bom):]
		} else {
			return s
		}
	}
}

// trimRight cuts blanks (a CR, too) off the end.
func trimRight(s []byte) []byte {
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}
