package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of a decompressor; zstd's own default levels need at most 8 MiB.
const maxWindow = 32 << 20

// A source is an open log, plain or compressed, from which bytes are read in order.
type source struct {
	path     string
	f        *os.File
	size     int64 // on disk when it was opened; nothing behind it is read
	dev, ino uint64
	zr       *zstd.Decoder // nil for a plain file
	head     []byte        // the first bytes, up to headFP
}

// packed says whether a path names a compressed log.
func packed(path string) bool { return strings.HasSuffix(path, ".zst") }

func openSource(path string) (*source, error) {
	f, fi, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, f: f, size: fi.Size()}
	s.dev, s.ino = openID(f, fi)
	return s, nil
}

func (s *source) close() {
	if s.zr != nil {
		s.zr.Close()
	}
	s.f.Close()
}

// rewind starts a compressed file again.
func (s *source) rewind() (io.Reader, error) {
	raw := io.NewSectionReader(s.f, 0, s.size)
	if s.zr != nil {
		return s.zr, s.zr.Reset(raw)
	}
	zr, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	s.zr = zr
	return zr, nil
}

// lines returns a reader of the lines from c on, from the start if the file is not the one c was made from.
func (s *source) lines(c Cursor, maxLine int64) (lr *lineReader, reset bool, err error) {
	var before []byte
	var r io.Reader
	if packed(s.path) {
		r, before, reset, err = s.seekPacked(c)
	} else {
		r, before, reset, err = s.seekPlain(&c)
	}
	if err != nil {
		return nil, false, err
	}
	if reset {
		c = Cursor{}
	}
	return newLineReader(r, before, c.Offset, max(0, s.size-c.Offset), maxLine), reset, nil
}

// seekPlain may move a cursor without a fingerprint to the start of the line it stands in.
func (s *source) seekPlain(c *Cursor) (r io.Reader, before []byte, reset bool, err error) {
	if s.head, err = s.at(0, headFP); err != nil {
		return nil, nil, false, err
	}
	if c.Offset > 0 {
		if c.Offset <= s.size && c.HeadLen == 0 && c.TailLen == 0 {
			if c.Offset, err = s.lineStart(c.Offset); err != nil {
				return nil, nil, false, err
			}
		}
		n := min(tailFP, c.Offset)
		if before, err = s.at(c.Offset-n, n); err != nil {
			return nil, nil, false, err
		}
		// All of before must be there: otherwise the file ends before the offset.
		if int64(len(before)) < n || !c.matches(s.head, before) {
			reset, before = true, nil
		}
	}
	off := c.Offset
	if reset {
		off = 0
	}
	return io.NewSectionReader(s.f, off, max(0, s.size-off)), before, reset, nil
}

// at reads n bytes at off, less where the file ends.
func (s *source) at(off, n int64) ([]byte, error) {
	n = max(0, min(n, s.size-off))
	b := make([]byte, n)
	got, err := s.f.ReadAt(b, off)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return b[:got], nil
}

// lineStart returns the start of the line that holds the byte before off.
func (s *source) lineStart(off int64) (int64, error) {
	for off > 0 {
		n := min(64<<10, off)
		b, err := s.at(off-n, n)
		if err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return off - n + int64(i) + 1, nil
		}
		off -= n
	}
	return 0, nil
}

// seekPacked decompresses up to the cursor, which is the only way there.
func (s *source) seekPacked(c Cursor) (r io.Reader, before []byte, reset bool, err error) {
	z, err := s.rewind()
	if err != nil {
		return nil, nil, false, s.corrupt(0, err)
	}
	s.head = make([]byte, headFP)
	n, _ := io.ReadFull(z, s.head) // an error comes again at the next read
	s.head = s.head[:n]
	r = io.MultiReader(bytes.NewReader(s.head), z)
	if c.Offset == 0 {
		return r, nil, false, nil
	}
	keep := min(tailFP, c.Offset)
	before = make([]byte, keep)
	if _, err = io.CopyN(io.Discard, r, c.Offset-keep); err == nil {
		_, err = io.ReadFull(r, before)
	}
	if err == nil && c.matches(s.head, before) {
		return r, before, false, nil
	}
	if err != nil {
		// Shorter than the cursor is another file; damaged, or not yet written to its end, is not.
		if _, err = z.Read(make([]byte, 1)); err != io.EOF {
			return nil, nil, false, s.corrupt(0, err)
		}
	}
	if r, err = s.rewind(); err != nil {
		return nil, nil, false, s.corrupt(0, err)
	}
	return r, nil, true, nil
}

// corrupt is the error of a compressed file that yields no more behind off.
func (s *source) corrupt(off int64, err error) error {
	return fmt.Errorf("decompressing %s: %w, nothing readable behind byte %d: %v", s.path, ErrCorrupt, off, err)
}

// failed is the error that ended lr early.
func (s *source) failed(lr *lineReader) error {
	if packed(s.path) {
		return s.corrupt(lr.off, lr.err)
	}
	return fmt.Errorf("%s behind byte %d: %w", s.path, lr.off, lr.err)
}

// matches says whether the file that starts with head, and has before in front of the cursor's offset, is the cursor's. The inode
// does not count: a log that was copied, restored or decompressed is the same log, and an inode may be given away again.
func (c Cursor) matches(head, before []byte) bool {
	h, t := int(c.HeadLen), int(c.TailLen)
	if h < 0 || t < 0 || h > len(head) || t > len(before) {
		return false
	}
	return (h == 0 || hash(head[:h]) == c.Head) && (t == 0 || hash(before[len(before)-t:]) == c.Tail)
}

// cursor returns the cursor for an offset behind the given bytes.
func (s *source) cursor(off int64, before []byte) Cursor {
	c := Cursor{Dev: s.dev, Ino: s.ino, Offset: off}
	if off == 0 {
		return c
	}
	head := s.head[:min(int64(len(s.head)), off)]
	c.Head, c.HeadLen = hash(head), int32(len(head))
	c.Tail, c.TailLen = hash(before), int32(len(before))
	return c
}

func hash(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}
