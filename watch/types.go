// Package watch finds the log files of coding agents and reads them record by record.
//
// It has two halves that meet only in the caller. A [Watcher] says where to look: it walks the given roots, listens to the
// kernel, and emits an [Event] for every path that is new, has changed or is gone. [Read] says what is there: given a path and
// a [Cursor] it returns the whole records behind the cursor, and the next cursor. In flow paths and bytes of files that other
// programs write at any moment; out flow events and records.
//
// Kernel events are hints ("look there"), never facts: what is true is what a directory listing, a stat or a read says. After
// each new watch the directory is read again, and a slow rescan finds whatever was missed, so a lost event costs latency
// and never a record.
//
// The package never writes to a watched file, never opens one in order to watch it, never follows a symbolic link to a file, and
// knows nothing of what a record means.
package watch

import (
	"errors"
	"time"
)

// ErrNotRegular is reported for a path that is not a regular file: a directory, symbolic link, FIFO, socket or device.
var ErrNotRegular = errors.New("not a regular file")

// ErrCorrupt is reported for a compressed log that cannot be decompressed. The batch that comes with it holds what was readable.
var ErrCorrupt = errors.New("corrupt compressed log")

const (
	// HeadBytes is how much of the beginning of an oversize line a [Record] carries in Data.
	HeadBytes = 64 << 10
	// TailBytes is how much of the end of an oversize line a [Record] carries in Tail.
	TailBytes = 16 << 10
	// DefaultMaxLine is the length from which a line is delivered by its ends only.
	DefaultMaxLine = 8 << 20
	// DefaultMaxBytes is how many bytes of a file one [Read] consumes before it hands over what it has.
	DefaultMaxBytes = 4 << 20
)

// A Record is one JSON object of a log: a whole line without its newline, NUL padding, byte order mark, CR and blanks around it.
type Record struct {
	// Path is the file the record was read from.
	Path string
	// Offset is where the record's first byte (its opening brace) stands in the decompressed file.
	Offset int64
	// Next is the offset behind the record and its newline: the file is handled up to here once the record is.
	Next int64
	// Data is the record; of an oversize one only its first HeadBytes. It is the record's own memory.
	Data []byte
	// Tail is the last TailBytes of an oversize record; else nil.
	Tail []byte
	// Size is the full length of the record in bytes.
	Size int64
	// Sum is the SHA-256 of the full record.
	Sum [32]byte
	// Oversize says that the line was longer than Limits.MaxLine. Such a record starts and ends as an object; its middle was not parsed.
	Oversize bool
}

// A Cursor says how far a file has been handled, and how to recognise the file. The zero Cursor stands at the start of any file.
// It survives JSON unchanged.
type Cursor struct {
	// Dev and Ino identify the file the cursor was made from. They inform; the fingerprint decides.
	Dev uint64 `json:"d,omitempty"`
	Ino uint64 `json:"i,omitempty"`
	// Offset is the first byte that is not handled, in the decompressed file.
	Offset int64 `json:"o,omitempty"`
	// Head and Tail are hashes of the first HeadLen bytes of the file and of the TailLen bytes before Offset. A cursor
	// with an offset and without them (see Event.End) trusts the file.
	Head    uint64 `json:"h,omitempty"`
	Tail    uint64 `json:"t,omitempty"`
	HeadLen int32  `json:"hl,omitempty"`
	TailLen int32  `json:"tl,omitempty"`
	// Scan is how many bytes behind Offset are known to hold no line end, so that a huge line that arrives in small
	// pieces is not searched from its start each time.
	Scan int64 `json:"s,omitempty"`
	// Packed is the size of a compressed file that was read to its end. While that stays, it is not decompressed again.
	Packed int64 `json:"z,omitempty"`
}

// Limits bound one call of [Read].
type Limits struct {
	// MaxBytes is how much of the file is consumed before the batch is handed over; 0 means DefaultMaxBytes. A line is never split, so a batch
	// may be larger by one line.
	MaxBytes int64
	// MaxRecords is how many records a batch holds; 0 means as many as fit.
	MaxRecords int
	// MaxLine is the longest line that is delivered whole; 0 means DefaultMaxLine. Memory is bounded by a small multiple of it.
	MaxLine int64
	// AcceptTail takes a final line without newline as a record if it is a complete JSON object. Set it once a file has been still for a while.
	AcceptTail bool
}

// A Batch is what one [Read] found.
type Batch struct {
	// Records are in the order of the file. There may be none although More is set, when everything read was junk.
	Records []Record
	// Cursor stands behind the last record and the junk after it; it is the argument of the next Read.
	Cursor Cursor
	// Reset says that the file was truncated, replaced or rewritten since the cursor was made: records start again at offset 0.
	Reset bool
	// More says that another Read may return more at once: a limit ended this one.
	More bool
	// Partial is the length in bytes of an incomplete final line, which is held until it is whole.
	Partial int64
	// Skipped counts what was left out of this batch.
	Skipped Skips
}

// Skips counts input that is not delivered, or not as it stood. Blank lines are not counted.
type Skips struct {
	// Invalid counts lines that are no JSON object.
	Invalid int `json:"invalid,omitempty"`
	// NUL counts lines in which NUL bytes were dropped.
	NUL int `json:"nul,omitempty"`
	// Oversize counts records of which only head and tail were kept.
	Oversize int `json:"oversize,omitempty"`
	// Glued counts stubs of interrupted writes that were cut off in front of a record.
	Glued int `json:"glued,omitempty"`
}

// Add adds the counts of t to s.
func (s *Skips) Add(t Skips) {
	s.Invalid += t.Invalid
	s.NUL += t.NUL
	s.Oversize += t.Oversize
	s.Glued += t.Glued
}

// A Class says what a path is to the caller.
type Class int

const (
	// Ignore is a path that is neither reported nor remembered.
	Ignore Class = iota
	// Log is a file of records, to be read with Read.
	Log
	// Sidecar is a small file that is read whole (.meta.json, pid files).
	Sidecar
)

// String returns the class's name.
func (c Class) String() string {
	switch c {
	case Log:
		return "log"
	case Sidecar:
		return "sidecar"
	default:
		return "ignore"
	}
}

// A Root is a directory tree of one provider. The functions are called from the goroutine that runs [Watcher.Run].
type Root struct {
	// Name is the provider's name.
	Name string
	// Path is the absolute path of the tree. It may not exist yet, and may vanish and return.
	Path string
	// Classify says what a file is, by its slash-separated path relative to Path.
	Classify func(rel string) Class
	// Descend says whether to enter a directory; nil means all.
	Descend func(rel string) bool
	// Priority orders the first scan, lower first; equal ones come in the order of their paths. nil means by path only.
	Priority func(rel string) int
}

// An Op says why an [Event] was emitted.
type Op int

const (
	// Seen is a path's first sight: in the first scan, or because it is new.
	Seen Op = iota + 1
	// Changed is a known path of which size, modification time, mode or identity differ.
	Changed
	// Gone is a known path that no longer exists. A rename is a Gone and a Seen.
	Gone
	// ScanDone follows the last Seen of a root's first scan, once per root, also when the root does not exist. It has no Path.
	ScanDone
)

// String returns the operation's name.
func (o Op) String() string {
	switch o {
	case Seen:
		return "seen"
	case Changed:
		return "changed"
	case Gone:
		return "gone"
	case ScanDone:
		return "scan-done"
	default:
		return "unknown"
	}
}

// An Event says that a path deserves a look. Several changes may have become one event.
type Event struct {
	// Root and RootPath are the root's Name and Path.
	Root, RootPath string
	// Path is absolute; Rel is relative to RootPath and slash-separated.
	Path, Rel string
	// Class is what Classify said.
	Class Class
	// Op is why the event was emitted.
	Op Op
	// Size in bytes, ModTime, Dev and Ino are the file's when it was looked at (of a Gone one: the last known). Dev and Ino
	// are 0 where the system does not tell them with a stat (Windows).
	Size     int64
	ModTime  time.Time
	Dev, Ino uint64
}
