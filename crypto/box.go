package crypto

import (
	"crypto/sha512"
	"fmt"
	"io"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
)

const (
	// WrappedKeySize is the length of a wrapped key: version, bundle, 32-byte key.
	WrappedKeySize = 1 + bundleOverhead + KeySize

	wrapVersion    = 0
	bundleOverhead = KeySize + boxNonce + box.Overhead
)

// ContentKeys is the key pair that session keys are wrapped for, derived from
// the account's secret.
func ContentKeys(secret []byte) (public, private [KeySize]byte, err error) {
	s, err := toKey("account secret", secret)
	if err != nil {
		return public, private, err
	}
	defer clear(s[:])
	seed := DeriveKey(s[:], "Happy EnCoder", "content")
	defer clear(seed)
	sum := sha512.Sum512(seed)
	defer clear(sum[:])
	copy(private[:], sum[:KeySize])
	curve25519.ScalarBaseMult(&public, &private)
	return public, private, nil
}

// WrapKey wraps a session's or machine's key for the owner of the content key:
// 0x00 | ephemeral public key(32) | nonce(24) | box. It reads 56 bytes from
// random, 32 for the ephemeral key and 24 for the nonce; nil means crypto/rand.
func WrapKey(contentPublic, key []byte, random io.Reader) ([]byte, error) {
	k, err := toKey("data key", key)
	if err != nil {
		return nil, err
	}
	defer clear(k[:])
	return sealBundle([]byte{wrapVersion}, contentPublic, k[:], random)
}

// UnwrapKey is the account's side of WrapKey.
func UnwrapKey(contentPrivate, wrapped []byte) ([]byte, error) {
	if len(wrapped) != WrappedKeySize || wrapped[0] != wrapVersion {
		return nil, ErrOpen
	}
	return openBundle(contentPrivate, wrapped[1:])
}

// sealBundle appends a box bundle to out: ephemeral public key, nonce, box.
func sealBundle(out, recipient, plain []byte, random io.Reader) ([]byte, error) {
	public, err := toPublicKey("recipient's public key", recipient)
	if err != nil {
		return nil, err
	}
	var ephemeral, ephemeralPublic [KeySize]byte
	var nonce [boxNonce]byte
	defer clear(ephemeral[:])
	random = orRandom(random)
	if _, err := io.ReadFull(random, ephemeral[:]); err != nil {
		return nil, fmt.Errorf("drawing an ephemeral key: %w", err)
	}
	if _, err := io.ReadFull(random, nonce[:]); err != nil {
		return nil, fmt.Errorf("drawing a nonce: %w", err)
	}
	curve25519.ScalarBaseMult(&ephemeralPublic, &ephemeral)
	out = append(out, ephemeralPublic[:]...)
	out = append(out, nonce[:]...)
	return box.Seal(out, plain, &nonce, &public, &ephemeral), nil
}

func openBundle(private, bundle []byte) ([]byte, error) {
	key, err := toKey("private key", private)
	if err != nil {
		return nil, err
	}
	defer clear(key[:])
	if len(bundle) < bundleOverhead {
		return nil, ErrOpen
	}
	sender := [KeySize]byte(bundle)
	nonce := [boxNonce]byte(bundle[KeySize:])
	plain, ok := box.Open(nil, bundle[KeySize+boxNonce:], &nonce, &sender, &key)
	if !ok {
		return nil, ErrOpen
	}
	return plain, nil
}

// toPublicKey refuses, besides wrong lengths, the few points that make a shared
// secret everybody knows.
func toPublicKey(what string, b []byte) (key [KeySize]byte, err error) {
	if key, err = toKey(what, b); err != nil {
		return key, err
	}
	probe := [KeySize]byte{9}
	if _, err := curve25519.X25519(probe[:], key[:]); err != nil {
		return key, fmt.Errorf("%s is a weak point of the curve", what)
	}
	return key, nil
}
