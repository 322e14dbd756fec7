package watch

import (
	"bytes"
	"fmt"
	"io"
	"math"
)

// scanFrom is the length of an incomplete line from which its search for a line end is remembered in the cursor.
const scanFrom = 256 << 10

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxRecords <= 0 {
		l.MaxRecords = math.MaxInt
	}
	if l.MaxLine <= 0 {
		l.MaxLine = DefaultMaxLine
	}
	l.MaxLine = min(l.MaxLine, 1<<30)
	return l
}

// Read returns the whole records of the file behind c. It opens the file, checks that it still is the one that c was made from, reads
// what was appended and closes it; between calls it keeps nothing. The cost is that of the appended bytes and of a few KiB for the check.
//
// A file with the same content under another inode or name continues where it was. One that is shorter, or holds something else at its start or in
// front of the cursor, starts again, and the batch says Reset. Lines that are no JSON object are skipped and counted, and never end the
// read. A final line without newline is held: the cursor stays in front of it.
//
// A path that ends in .zst is decompressed, offsets are those of the decompressed bytes, and a final line without newline counts, as nobody
// appends to such a file. Each call decompresses from the start.
//
// The error is fs.ErrNotExist when the file is gone, [ErrNotRegular] for anything but a file, [ErrCorrupt] for a damaged compressed log. In
// the last case the batch holds the records in front of the damage; otherwise its cursor is c.
func Read(path string, c Cursor, l Limits) (Batch, error) {
	l = l.withDefaults()
	b := Batch{Cursor: c}
	s, err := openSource(path)
	if err != nil {
		return b, fmt.Errorf("reading log: %w", err)
	}
	defer s.close()
	if packed(path) {
		if c.Packed == s.size && c.Packed > 0 && c.Dev == s.dev && c.Ino == s.ino {
			return b, nil
		}
		l.AcceptTail = true
	}
	lr, reset, err := s.lines(c, l.MaxLine)
	if err != nil {
		return b, fmt.Errorf("reading log: %w", err)
	}
	if c.Scan > 0 && !reset && !l.AcceptTail {
		if found, err := s.lineEnds(c.Offset + c.Scan); err == nil && !found {
			b.Cursor = s.cursor(lr.off, lr.before())
			b.Partial = s.size - lr.off
			b.Cursor.Scan = b.Partial
			return b, nil
		}
	}
	b.Reset = reset
	p := parser{path: path}
	start := lr.off
	atEnd := false
	for !atEnd && len(b.Records) < l.MaxRecords && lr.off-start < l.MaxBytes {
		if ln, ok := lr.next(); ok {
			b.Records = append(b.Records, p.line(ln)...)
		} else {
			atEnd = true
		}
	}
	if !atEnd {
		b.More = lr.off < s.size || packed(path)
	} else if lr.err == nil {
		if l.AcceptTail {
			b.Records = append(b.Records, lr.last(&p)...)
		}
		b.Partial = lr.partial
	}
	b.Skipped = p.skips
	b.Cursor = s.cursor(lr.off, lr.before())
	if b.Partial >= scanFrom && lr.buf[lr.end-1] != 0 {
		b.Cursor.Scan = b.Partial // NULs at the end may be a block that is still to come
	}
	if lr.err != nil {
		return b, fmt.Errorf("reading log: %w", s.failed(lr))
	}
	if packed(path) && !b.More {
		b.Cursor.Packed = s.size
	}
	return b, nil
}

// last takes the incomplete last line as a record if it is one. The reader then stands behind the record.
func (lr *lineReader) last(p *parser) []Record {
	if lr.held != nil || lr.partial == 0 {
		return nil
	}
	raw := lr.buf[lr.start:lr.end]
	t := trimLeft(bytes.TrimLeft(raw, "\x00"))
	skip := len(raw) - len(t)
	t = trimRight(bytes.TrimRight(t, "\x00"))
	if len(t) == 0 || t[0] != '{' || p.json.value(t) != complete || p.json.at != len(t) {
		return nil
	}
	p.out = p.out[:0]
	p.emit(t, lr.off+int64(skip))
	if skip > 0 && raw[0] == 0 {
		p.skips.NUL++
	}
	n := skip + len(t)
	lr.start += n
	lr.scan = lr.start
	lr.off += int64(n)
	lr.partial -= int64(n)
	return p.out
}

// lineEnds says whether something in the file from off on ends a line.
func (s *source) lineEnds(off int64) (bool, error) {
	if off > s.size {
		return true, nil // the line was cut back: look at it anew
	}
	buf := make([]byte, min(s.size-off, 64<<10)+1)
	r := io.NewSectionReader(s.f, off, s.size-off)
	for {
		n, err := r.Read(buf)
		if bytes.ContainsAny(buf[:n], "\n\x00") {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// ReadRange reads again the records that begin in [from, to), where from is the Offset of a record that was read before, and hands them to fn
// one by one. The first error of fn ends it and is returned. It does not check that the file is still the same: compare Sum.
func ReadRange(path string, from, to int64, fn func(Record) error) error {
	l := Limits{AcceptTail: true}.withDefaults()
	s, err := openSource(path)
	if err != nil {
		return fmt.Errorf("reading range: %w", err)
	}
	defer s.close()
	lr, err := s.linesAt(from, l.MaxLine)
	if err != nil {
		return fmt.Errorf("reading range: %w", err)
	}
	p := parser{path: path}
	for lr.off < to {
		var recs []Record
		if ln, ok := lr.next(); ok {
			recs = p.line(ln)
		} else if recs = lr.last(&p); len(recs) == 0 {
			break
		}
		for _, r := range recs {
			if r.Offset >= to {
				return nil
			}
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	if lr.err != nil {
		return fmt.Errorf("reading range: %w", s.failed(lr))
	}
	return nil
}

// linesAt returns a reader of the lines from off on, without any check.
func (s *source) linesAt(off, maxLine int64) (*lineReader, error) {
	if !packed(s.path) {
		n := max(0, s.size-off)
		return newLineReader(io.NewSectionReader(s.f, off, n), nil, off, n, maxLine), nil
	}
	r, err := s.rewind()
	if err == nil {
		_, err = io.CopyN(io.Discard, r, off)
	}
	if err != nil && err != io.EOF {
		return nil, s.corrupt(0, err)
	}
	return newLineReader(r, nil, off, s.size, maxLine), nil
}

// End returns the cursor behind the last record of a file, for one whose past is not wanted. Of a plain file only the end is read; a
// compressed one is decompressed. An incomplete last line stays in front of the cursor's way: it is read when it is whole.
func End(path string) (Cursor, error) {
	s, err := openSource(path)
	if err != nil {
		return Cursor{}, fmt.Errorf("finding the end of log: %w", err)
	}
	defer s.close()
	if packed(path) {
		return s.endPacked()
	}
	off, err := s.lineStart(s.size)
	if err != nil {
		return Cursor{}, fmt.Errorf("finding the end of log %s: %w", path, err)
	}
	lr, _, err := s.lines(Cursor{Offset: off}, DefaultMaxLine)
	if err != nil {
		return Cursor{}, fmt.Errorf("finding the end of log %s: %w", path, err)
	}
	// A whole object without its newline is a record that was written: it belongs to the past, too.
	if _, more := lr.next(); !more && lr.err == nil {
		lr.last(&parser{path: path})
	}
	return s.cursor(lr.off, lr.before()), nil
}

func (s *source) endPacked() (Cursor, error) {
	lr, _, err := s.lines(Cursor{}, DefaultMaxLine)
	if err != nil {
		return Cursor{}, fmt.Errorf("finding the end of log: %w", err)
	}
	for {
		if _, ok := lr.next(); !ok {
			break
		}
	}
	if lr.err != nil {
		return Cursor{}, fmt.Errorf("finding the end of log: %w", s.failed(lr))
	}
	lr.last(&parser{path: s.path})
	c := s.cursor(lr.off, lr.before())
	c.Packed = s.size
	return c, nil
}

// End returns the cursor at the end that the file had when it was looked at, without opening it; false for a compressed one and a file that is
// gone, which need the function [End]. Read trusts such a cursor as long as the file is not shorter, and begins
// at the line that was incomplete then.
func (e Event) End() (Cursor, bool) {
	if e.Class != Log || e.Op == Gone || packed(e.Path) {
		return Cursor{}, false
	}
	return Cursor{Dev: e.Dev, Ino: e.Ino, Offset: e.Size}, true
}

// First returns the first record of a file, false if there is none in its first Limits.MaxBytes.
func First(path string, l Limits) (Record, bool, error) {
	l.MaxRecords = 1
	b, err := Read(path, Cursor{}, l)
	if len(b.Records) == 0 {
		return Record{}, false, err
	}
	return b.Records[0], true, nil
}
