package relay

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// schema is the version of the file's layout; a newer one is refused.
const schema = 1

// The buckets. Rows are JSON; messages and localIDs hold one bucket a session.
var (
	bucketMeta     = []byte("meta")     // version, signing seed
	bucketAccounts = []byte("accounts") // account id -> account
	bucketKeys     = []byte("keys")     // public key -> account id
	bucketSessions = []byte("sessions") // session id -> session
	bucketTags     = []byte("tags")     // account id, 0, tag -> session id
	bucketMessages = []byte("messages") // session id -> seq (8 bytes) -> message
	bucketLocalIDs = []byte("localids") // session id -> local id -> seq
	bucketMachines = []byte("machines") // machine id -> machine
	bucketActive   = []byte("active")   // 's' or 'm', id -> nothing: what the sweeper looks at
	bucketUsage    = []byte("usage")    // account id, 0, session id, 0, key -> report

	keyVersion = []byte("version")
	keySeed    = []byte("seed")
)

var errClosed = errors.New("the relay is closed")

// groupLimit bounds the changes that share one commit.
const groupLimit = 64

// change is one unit of work in a write transaction. It returns what is to be
// done once the change is on disk (or nil), which must not block. A change that
// refuses (an *answer as its error) must not have written anything.
type change func(tx *bbolt.Tx) (after func(), err error)

// job is a change on its way through the committer.
type job struct {
	change change
	after  func()
	err    error
	done   chan struct{}
}

// run applies the change. A panic, of a damaged page or a bug, costs this change
// and not the daemon around the relay.
func (j *job) run(tx *bbolt.Tx) {
	defer func() {
		if v := recover(); v != nil {
			j.err = fmt.Errorf("changing the relay's data: panic: %v\n%s", v, debug.Stack())
		}
	}()
	j.after, j.err = j.change(tx)
}

// database is the file and its single writer. Changes that arrive while a
// commit is being written to disk share the next one, so that the cost of a
// flush is paid once for all of them; a lone change waits for nobody.
type database struct {
	bolt  *bbolt.DB
	jobs  chan *job
	quit  chan struct{} // closed by close
	ended chan struct{} // closed when the committer is gone
	once  sync.Once
}

// openDatabase opens or creates the file at path.
func openDatabase(path string) (d *database, err error) {
	defer func() {
		if v := recover(); v != nil { // bbolt's answer to a mangled page
			d, err = nil, fmt.Errorf("opening %s: the file is damaged: %v", path, v)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening the relay's data: %w", err)
	}
	b, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("opening %s: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), b.Update(migrate)); err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, errors.Join(err, b.Close()))
	}
	d = &database{bolt: b, jobs: make(chan *job), quit: make(chan struct{}), ended: make(chan struct{})}
	go d.run()
	return d, nil
}

// migrate makes an empty file ready and refuses a foreign or newer one.
func migrate(tx *bbolt.Tx) error {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return errors.New("this is not a file of the relay")
		}
		for _, name := range [][]byte{
			bucketMeta, bucketAccounts, bucketKeys, bucketSessions, bucketTags,
			bucketMessages, bucketLocalIDs, bucketMachines, bucketActive, bucketUsage,
		} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		seed := make([]byte, ed25519.SeedSize)
		rand.Read(seed) // never fails
		meta = tx.Bucket(bucketMeta)
		return errors.Join(meta.Put(keySeed, seed), meta.Put(keyVersion, binary.BigEndian.AppendUint64(nil, schema)))
	}
	v := meta.Get(keyVersion)
	if len(v) != 8 || len(meta.Get(keySeed)) != ed25519.SeedSize {
		return errors.New("this is not a file of the relay")
	}
	if got := binary.BigEndian.Uint64(v); got != schema {
		return fmt.Errorf("the file has version %d, this program knows %d", got, schema)
	}
	return nil
}

func (d *database) close() error {
	d.once.Do(func() { close(d.quit) })
	<-d.ended
	return d.bolt.Close()
}

// signingKey is the key that the relay's tokens are signed with.
func (d *database) signingKey() (key ed25519.PrivateKey, err error) {
	err = d.bolt.View(func(tx *bbolt.Tx) error {
		key = ed25519.NewKeyFromSeed(tx.Bucket(bucketMeta).Get(keySeed))
		return nil
	})
	return key, err
}

// update runs c and returns once it is on disk and its after was called. The
// afters of all changes run one by one in the order of the changes.
func (d *database) update(c change) error {
	j := &job{change: c, done: make(chan struct{})}
	select {
	case d.jobs <- j:
		<-j.done
		return j.err
	case <-d.quit:
		return errClosed
	}
}

func (d *database) view(fn func(tx *bbolt.Tx) error) error {
	err := d.bolt.View(fn)
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return errClosed
	}
	return err
}

// run is the committer.
func (d *database) run() {
	defer close(d.ended)
	for {
		select {
		case first := <-d.jobs:
			d.commit(d.gather(first))
		case <-d.quit:
			return
		}
	}
}

// gather takes along whoever is waiting at this moment.
func (d *database) gather(first *job) []*job {
	group := []*job{first}
	for len(group) < groupLimit {
		select {
		case j := <-d.jobs:
			group = append(group, j)
		default:
			return group
		}
	}
	return group
}

func (d *database) commit(group []*job) {
	err := d.bolt.Update(func(tx *bbolt.Tx) error {
		for _, j := range group {
			var refusal *answer
			if j.run(tx); j.err != nil && !errors.As(j.err, &refusal) {
				return j.err
			}
		}
		return nil
	})
	if err != nil && len(group) > 1 { // only the culprit shall suffer
		for _, j := range group {
			d.commit([]*job{j})
		}
		return
	}
	for _, j := range group {
		if err != nil {
			j.err = err
		} else if j.err == nil && j.after != nil {
			j.after()
		}
		close(j.done)
	}
}

func (d *database) stats() (s Stats, err error) {
	err = d.view(func(tx *bbolt.Tx) error {
		s.Bytes = tx.Size()
		s.Accounts = tx.Bucket(bucketAccounts).Stats().KeyN
		s.Machines = tx.Bucket(bucketMachines).Stats().KeyN
		return tx.Bucket(bucketSessions).ForEach(func(_, v []byte) error {
			var row struct{ Seq int }
			if err := json.Unmarshal(v, &row); err != nil {
				return err
			}
			s.Sessions++
			s.Messages += row.Seq // numbers have no gaps
			return nil
		})
	})
	return s, err
}

// load reads a row; it reports false when there is none.
func load(tx *bbolt.Tx, bucket []byte, id string, row any) (bool, error) {
	if id == "" {
		return false, nil
	}
	b := tx.Bucket(bucket).Get([]byte(id))
	if b == nil {
		return false, nil
	}
	if err := json.Unmarshal(b, row); err != nil {
		return false, fmt.Errorf("reading a row of %s: %w", bucket, err)
	}
	return true, nil
}

// save writes a row.
func save(tx *bbolt.Tx, bucket []byte, id string, row any) error {
	b, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("encoding a row of %s: %w", bucket, err)
	}
	return tx.Bucket(bucket).Put([]byte(id), b)
}

// saveActive keeps the sweeper's list for the row kind and id.
func saveActive(tx *bbolt.Tx, kind byte, id string, active bool) error {
	key := append([]byte{kind}, id...)
	if active {
		return tx.Bucket(bucketActive).Put(key, nil)
	}
	return tx.Bucket(bucketActive).Delete(key)
}

const idDigits = "0123456789abcdefghijklmnopqrstuvwxyz"

// newID makes an id in the shape of the real server's: a letter, the time in
// base 36, then randomness. Ids sort by the time they were made.
func newID(ms int64) string {
	b := make([]byte, 25)
	rand.Read(b[9:]) // never fails
	b[0] = 'c'
	for i := 8; i > 0; i-- {
		b[i] = idDigits[ms%36]
		ms /= 36
	}
	for i := 9; i < len(b); i++ {
		b[i] = idDigits[b[i]%36]
	}
	return string(b)
}
