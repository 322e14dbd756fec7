package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// schemaVersion is the layout written by this version. Raise it when an older
// happyd must not open the file any more.
const schemaVersion = 1

// tmpSuffix names the file that is written beside the store and then renamed
// over it, at creation and at compaction.
const tmpSuffix = ".tmp"

var (
	bucketMeta   = []byte("meta")
	bucketScopes = []byte("scopes")
	keySchema    = []byte("schema")
)

// errDamage marks what guard caught: a panic or a fault inside bbolt.
type errDamage struct{ cause any }

func (e errDamage) Error() string { return fmt.Sprintf("%v: %v", ErrCorrupt, e.cause) }
func (e errDamage) Unwrap() error { return ErrCorrupt }

func isDamage(err error) bool {
	var d errDamage
	return errors.As(err, &d)
}

// guard turns bbolt's way of reporting damage into an error: it asserts by
// panic, and a file that was cut short faults in the memory map.
func guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = errDamage{r}
		}
	}()
	return fn()
}

func boltOptions() *bolt.Options {
	return &bolt.Options{
		// Our own lock is held already; bbolt's is never waited for.
		Timeout: time.Second,
		// The free list stays on disk (no NoFreelistSync): opening then costs
		// nothing per page, and a damaged tree is met inside guard instead of
		// in a goroutine of bbolt's that nobody can recover from.
		FreelistType: bolt.FreelistMapType,
	}
}

// createIfMissing makes an empty store under a temporary name and renames it,
// so that a half initialised file is never seen under the real one.
func (s *Store) createIfMissing() error {
	path, o := s.path, boltOptions()
	o.NoSync, o.NoGrowSync = s.hasty, s.hasty
	if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
		return nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("looking for the state file: %w", err)
	}
	tmp := path + tmpSuffix
	db, err := bolt.Open(tmp, 0o600, o)
	if err != nil {
		return fmt.Errorf("creating the state file: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(bucketMeta)
		if err != nil {
			return err
		}
		if _, err := tx.CreateBucketIfNotExists(bucketScopes); err != nil {
			return err
		}
		return meta.Put(keySchema, binary.BigEndian.AppendUint32(nil, schemaVersion))
	})
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.replaceFile(tmp)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("creating the state file: %w", err)
	}
	return nil
}

// replaceFile puts the finished file tmp under the store's name, durably.
func (s *Store) replaceFile(tmp string) error {
	if err := os.Rename(tmp, s.path); err != nil || s.hasty {
		return err
	}
	return syncDir(filepath.Dir(s.path))
}

// openDB opens the existing file and checks that it is ours.
func (s *Store) openDB() (*bolt.DB, error) {
	path, o := s.path, boltOptions()
	o.NoSync, o.NoGrowSync = s.hasty, s.hasty
	if fi, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("opening the state file: %w", err)
	} else if fi.Mode().Perm()&0o077 != 0 {
		// Restored from a backup, perhaps. What is inside is sealed, but whose
		// projects there are is nobody else's business either.
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, fmt.Errorf("restricting the state file to its owner: %w", err)
		}
	}
	if err := checkHeader(path); err != nil {
		return nil, err
	}
	var db *bolt.DB
	err := guard(func() (err error) {
		db, err = bolt.Open(path, 0o600, o)
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("%w: another program holds %s open", ErrLocked, path)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch), isDamage(err):
		return nil, corrupt(path, err.Error())
	case err != nil:
		return nil, fmt.Errorf("opening the state file: %w", err)
	}
	if err := guard(func() error { return db.View(func(tx *bolt.Tx) error { return checkSchema(path, tx) }) }); err != nil {
		_ = guard(db.Close)
		if isDamage(err) {
			err = corrupt(path, err.Error())
		}
		return nil, err
	}
	return db, nil
}

func checkSchema(path string, tx *bolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return corrupt(path, "it is another program's database")
	}
	v := meta.Get(keySchema)
	if len(v) != 4 {
		return corrupt(path, "it has no schema version")
	}
	if n := binary.BigEndian.Uint32(v); n > schemaVersion {
		return fmt.Errorf("%w: %s has schema %d, this version knows %d; update happyd or choose another state_dir",
			ErrNewer, path, n, schemaVersion)
	}
	return nil
}

func corrupt(path, why string) error {
	return fmt.Errorf("%w: %s: %s; move it away and happyd starts with a new one "+
		"(what the server has already is recognised and not doubled)", ErrCorrupt, path, why)
}

// checkHeader compares the file's length with what its newer meta page claims,
// because bbolt would fault on the first page beyond the end.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the state file: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("opening the state file: %w", err)
	}
	const (
		magic    = 0xED0CDAED
		header   = 16 // page header before the meta
		metaSize = 64
	)
	pageSize := int64(os.Getpagesize())
	var need int64
	var newest uint64
	for i := range int64(2) {
		var b [header + metaSize]byte
		if _, err := f.ReadAt(b[:], i*pageSize); err != nil {
			continue
		}
		m := b[header:]
		ne := binary.NativeEndian
		if ne.Uint32(m) != magic {
			continue
		}
		if i == 0 {
			pageSize = int64(ne.Uint32(m[8:]))
		}
		sum := fnv.New64a()
		sum.Write(m[:metaSize-8])
		if sum.Sum64() != ne.Uint64(m[metaSize-8:]) {
			continue // torn while it was written: the other one counts
		}
		if txid := ne.Uint64(m[48:]); txid >= newest {
			newest = txid
			need = int64(ne.Uint64(m[40:])) * pageSize
		}
	}
	if need == 0 {
		return corrupt(path, "it does not begin as a state file does")
	}
	if fi.Size() < need {
		return corrupt(path, fmt.Sprintf("it is %d bytes long but should have %d", fi.Size(), need))
	}
	return nil
}
