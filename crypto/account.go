package crypto

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
)

// Account is the key material of one login. It is safe for concurrent use.
type Account struct {
	// mu guards the keys against Close.
	mu sync.RWMutex
	// closed is set once the keys are gone.
	closed bool
	// legacy says that key is the account's secret.
	legacy bool
	// key is the account's secret (legacy) or the machine key (data key).
	key [KeySize]byte
	// contentPublic is the account's public content key; data key only.
	contentPublic [KeySize]byte
	// fingerprint is computed once; it outlives the keys.
	fingerprint string
	// random feeds the nonces of every sealer; nil means crypto/rand.
	random io.Reader
}

// SessionKeys is what one session seals with.
type SessionKeys struct {
	// Sealer seals messages, metadata and agent state.
	Sealer Sealer
	// Blob seals attachments, which have a key of their own.
	Blob Sealer
	// Wrapped is the base64 dataEncryptionKey for the session's creation. It is
	// the same on every call, and empty (null on the wire) for a legacy login.
	Wrapped string
}

// NewLegacyAccount takes the account's 32-byte secret. It keeps a copy.
func NewLegacyAccount(secret []byte) (*Account, error) {
	key, err := toKey("account secret", secret)
	if err != nil {
		return nil, err
	}
	a := &Account{legacy: true, key: key}
	a.fingerprint = formatFingerprint(a.expand(8, labelFingerprint))
	return a, nil
}

// NewDataKeyAccount takes the account's public content key and this login's
// machine key, 32 bytes each. It keeps copies.
func NewDataKeyAccount(contentPublicKey, machineKey []byte) (*Account, error) {
	public, err := toPublicKey("content public key", contentPublicKey)
	if err != nil {
		return nil, err
	}
	key, err := toKey("machine key", machineKey)
	if err != nil {
		return nil, err
	}
	a := &Account{key: key, contentPublic: public}
	a.fingerprint = formatFingerprint(a.expand(8, labelFingerprint))
	return a, nil
}

// expand derives from both keys of the login: the same machine key for another
// account is another login.
func (a *Account) expand(n int, label string, inputs ...string) []byte {
	return expand(&a.key, n, label, append([]string{string(a.contentPublic[:])}, inputs...)...)
}

// Legacy reports whether the login knows the account's secret.
func (a *Account) Legacy() bool { return a.legacy }

// Fingerprint is a short name of the login, 16 hex digits: the same whenever the
// login is loaded, different for every other one, and of no use to learn the
// keys. It scopes local state, and may be logged and used as a file name.
func (a *Account) Fingerprint() string { return a.fingerprint }

// Tag names a session on the server: "happyd-" and 24 characters. It depends on
// nothing but the login and the arguments, and tells the server nothing about
// the source session. Generation counts up when the server turns out to hold
// another key under the tag. After Close it is empty.
func (a *Account) Tag(provider, sourceSession string, generation int) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return ""
	}
	return formatTag(a.expand(15, labelTag, provider, sourceSession, strconv.Itoa(generation)))
}

// Session derives the keys of the session with this tag. Calls with the same
// tag give the same keys and the same Wrapped, byte for byte; keep the result,
// since it costs two curve operations and an AES key schedule.
func (a *Account) Session(tag string) (SessionKeys, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return SessionKeys{}, ErrClosed
	}
	if a.legacy {
		return a.sessionKeys(NewSecretboxSealer, a.key[:], BlobKeyLegacy(a.key[:]), "")
	}
	key := expand(&a.key, KeySize, labelSession, tag)
	defer clear(key)
	wrapped, err := a.wrap(key, labelSessionWrap, tag)
	if err != nil {
		return SessionKeys{}, err
	}
	return a.sessionKeys(NewDataKeySealer, key, BlobKeyDataKey(key), wrapped)
}

func (a *Account) sessionKeys(seal func([]byte, io.Reader) (Sealer, error), key, blobKey []byte, wrapped string) (SessionKeys, error) {
	defer clear(blobKey)
	sealer, err := seal(key, a.random)
	if err != nil {
		return SessionKeys{}, err
	}
	blob, err := NewSecretboxSealer(blobKey, a.random)
	if err != nil {
		return SessionKeys{}, err
	}
	return SessionKeys{Sealer: sealer, Blob: blob, Wrapped: wrapped}, nil
}

// Machine returns what seals the machine's own metadata and state, and its
// base64 dataEncryptionKey (empty for a legacy login).
func (a *Account) Machine() (Sealer, string, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return nil, "", ErrClosed
	}
	if a.legacy {
		s, err := NewSecretboxSealer(a.key[:], a.random)
		return s, "", err
	}
	wrapped, err := a.wrap(a.key[:], labelMachineWrap)
	if err != nil {
		return nil, "", err
	}
	s, err := NewDataKeySealer(a.key[:], a.random)
	return s, wrapped, err
}

// State returns what seals local state at rest, under a key made for that
// purpose only. Its nonces are long enough to be random for any number of
// writes. After Close it fails.
func (a *Account) State() Sealer {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return closedSealer{}
	}
	return &secretboxSealer{key: [KeySize]byte(a.expand(KeySize, labelState)), random: orRandom(a.random)}
}

// wrap wraps key for the account with an ephemeral key and a nonce that are
// derived, so that the result can be compared with what the server holds. That
// repeats a nonce only for the same key and the same recipient, which is the
// same box again.
func (a *Account) wrap(key []byte, label string, inputs ...string) (string, error) {
	stream := a.expand(KeySize+boxNonce, label, inputs...)
	defer clear(stream)
	wrapped, err := WrapKey(a.contentPublic[:], key, bytes.NewReader(stream))
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(wrapped), nil
}

// Close overwrites the account's keys. Sealers that were handed out keep their
// own copy and go on working.
func (a *Account) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	clear(a.key[:])
	clear(a.contentPublic[:])
}

// String names the login without its keys.
func (a *Account) String() string { return "account " + a.fingerprint }

// GoString names the login without its keys.
func (a *Account) GoString() string { return a.String() }

// LogValue names the login without its keys.
func (a *Account) LogValue() slog.Value { return slog.StringValue(a.fingerprint) }

// closedSealer stands in for the state sealer of a closed account.
type closedSealer struct{}

func (closedSealer) Seal([]byte) ([]byte, error) { return nil, ErrClosed }
func (closedSealer) Open([]byte) ([]byte, error) { return nil, ErrClosed }

var (
	_ fmt.Stringer   = (*Account)(nil)
	_ fmt.GoStringer = (*Account)(nil)
	_ slog.LogValuer = (*Account)(nil)
)
