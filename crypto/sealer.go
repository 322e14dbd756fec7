package crypto

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"io"

	"golang.org/x/crypto/nacl/secretbox"
)

// Sealer encrypts and authenticates whole messages under one key. It takes and
// returns raw bytes, draws a fresh nonce for each Seal, and is safe for
// concurrent use.
type Sealer interface {
	// Seal encrypts plain. It fails only when there is no randomness.
	Seal(plain []byte) ([]byte, error)
	// Open returns the plaintext of what Seal made, or an error that is ErrOpen.
	Open(sealed []byte) ([]byte, error)
}

const (
	gcmVersion  = 0 // first byte of every data-key ciphertext
	gcmNonce    = 12
	gcmTag      = 16
	gcmOverhead = 1 + gcmNonce + gcmTag
	boxNonce    = 24
)

// NewDataKeySealer seals as data-key logins do: AES-256-GCM, laid out as
// 0x00 | nonce(12) | ciphertext | tag(16). A nil random means crypto/rand; any
// other must be safe for concurrent use if the Sealer is.
func NewDataKeySealer(key []byte, random io.Reader) (Sealer, error) {
	k, err := toKey("data key", key)
	if err != nil {
		return nil, err
	}
	defer clear(k[:])
	block, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, fmt.Errorf("preparing AES: %w", err)
	}
	// Kept for the life of the key: setting it up costs more than sealing a
	// short message.
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("preparing GCM: %w", err)
	}
	return &gcmSealer{aead: aead, random: orRandom(random)}, nil
}

type gcmSealer struct {
	aead   cipher.AEAD
	random io.Reader
}

func (s *gcmSealer) Seal(plain []byte) ([]byte, error) {
	out := make([]byte, 1+gcmNonce, gcmOverhead+len(plain))
	out[0] = gcmVersion
	nonce := out[1:]
	if _, err := io.ReadFull(s.random, nonce); err != nil {
		return nil, fmt.Errorf("drawing a nonce: %w", err)
	}
	return s.aead.Seal(out, nonce, plain, nil), nil
}

func (s *gcmSealer) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < gcmOverhead || sealed[0] != gcmVersion {
		return nil, ErrOpen
	}
	plain, err := s.aead.Open(nil, sealed[1:1+gcmNonce], sealed[1+gcmNonce:], nil)
	if err != nil {
		return nil, ErrOpen
	}
	return plain, nil
}

// String keeps the key out of logs.
func (s *gcmSealer) String() string { return "data-key sealer" }

// GoString keeps the key out of logs.
func (s *gcmSealer) GoString() string { return s.String() }

// NewSecretboxSealer seals as legacy logins do, and as blobs always are:
// XSalsa20-Poly1305, laid out as nonce(24) | box. A nil random means
// crypto/rand; any other must be safe for concurrent use if the Sealer is.
func NewSecretboxSealer(key []byte, random io.Reader) (Sealer, error) {
	k, err := toKey("secretbox key", key)
	if err != nil {
		return nil, err
	}
	return &secretboxSealer{key: k, random: orRandom(random)}, nil
}

type secretboxSealer struct {
	key    [KeySize]byte
	random io.Reader
}

func (s *secretboxSealer) Seal(plain []byte) ([]byte, error) {
	var nonce [boxNonce]byte
	if _, err := io.ReadFull(s.random, nonce[:]); err != nil {
		return nil, fmt.Errorf("drawing a nonce: %w", err)
	}
	out := make([]byte, boxNonce, boxNonce+secretbox.Overhead+len(plain))
	copy(out, nonce[:])
	return secretbox.Seal(out, plain, &nonce, &s.key), nil
}

func (s *secretboxSealer) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < boxNonce+secretbox.Overhead {
		return nil, ErrOpen
	}
	nonce := [boxNonce]byte(sealed[:boxNonce])
	plain, ok := secretbox.Open(nil, sealed[boxNonce:], &nonce, &s.key)
	if !ok {
		return nil, ErrOpen
	}
	return plain, nil
}

// String keeps the key out of logs.
func (s *secretboxSealer) String() string { return "secretbox sealer" }

// GoString keeps the key out of logs.
func (s *secretboxSealer) GoString() string { return s.String() }

func orRandom(r io.Reader) io.Reader {
	if r == nil {
		return rand.Reader
	}
	return r
}

var (
	_ Sealer = (*gcmSealer)(nil)
	_ Sealer = (*secretboxSealer)(nil)
)
