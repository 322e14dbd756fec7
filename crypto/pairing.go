package crypto

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"golang.org/x/crypto/curve25519"
)

// ErrPairing says that a pairing answer was opened but holds neither an account
// secret nor a content key.
var ErrPairing = errors.New("unknown kind of pairing answer")

// pairingV2 is the first byte of an answer that carries a content public key.
const pairingV2 = 0

// PairingResult is what the phone granted. Exactly one field is set.
type PairingResult struct {
	// Secret is the account's secret: the phone gave a full, legacy login.
	Secret []byte
	// ContentPublicKey is the account's public content key: the login may write
	// sessions, and needs a machine key of its own making.
	ContentPublicKey []byte
}

// String keeps the secret out of logs.
func (r PairingResult) String() string {
	if r.Secret != nil {
		return "pairing (legacy)"
	}
	return "pairing (data key)"
}

// GoString keeps the secret out of logs.
func (r PairingResult) GoString() string { return r.String() }

// LogValue keeps the secret out of logs.
func (r PairingResult) LogValue() slog.Value { return slog.StringValue(r.String()) }

// NewTerminalKey makes the key pair of one pairing. A nil random means crypto/rand.
func NewTerminalKey(random io.Reader) (public, secret []byte, err error) {
	secret = make([]byte, KeySize)
	if _, err := io.ReadFull(orRandom(random), secret); err != nil {
		return nil, nil, fmt.Errorf("drawing a terminal key: %w", err)
	}
	public, err = TerminalPublicKey(secret)
	return public, secret, err
}

// TerminalPublicKey is the public half of a pairing's secret.
func TerminalPublicKey(secret []byte) ([]byte, error) {
	key, err := toKey("terminal secret", secret)
	if err != nil {
		return nil, err
	}
	defer clear(key[:])
	return curve25519.X25519(key[:], curve25519.Basepoint)
}

// OpenPairing opens the phone's answer (raw bytes) with the pairing's secret.
func OpenPairing(terminalSecret, response []byte) (PairingResult, error) {
	plain, err := openBundle(terminalSecret, response)
	if err != nil {
		return PairingResult{}, fmt.Errorf("opening the pairing answer: %w", err)
	}
	switch {
	case len(plain) == KeySize:
		return PairingResult{Secret: plain}, nil
	case len(plain) == 1+KeySize && plain[0] == pairingV2:
		return PairingResult{ContentPublicKey: plain[1:]}, nil
	}
	clear(plain)
	return PairingResult{}, ErrPairing
}

// SealPairing is the phone's side of OpenPairing, for tools and tests. A nil
// random means crypto/rand.
func SealPairing(terminalPublic []byte, grant PairingResult, random io.Reader) ([]byte, error) {
	plain := grant.Secret
	if plain == nil {
		plain = append([]byte{pairingV2}, grant.ContentPublicKey...)
	}
	if (grant.Secret == nil) == (grant.ContentPublicKey == nil) {
		return nil, errors.New("a pairing grants either a secret or a content key")
	}
	if n := len(grant.Secret) + len(grant.ContentPublicKey); n != KeySize {
		return nil, fmt.Errorf("pairing grant has %d bytes, want %d", n, KeySize)
	}
	return sealBundle(nil, terminalPublic, plain, random)
}

// TerminalURL is what the QR code of a pairing says to the phone's app.
func TerminalURL(terminalPublic []byte) string {
	return "happy://terminal?" + base64.RawURLEncoding.EncodeToString(terminalPublic)
}

// WebURL is the same for the web app at base, such as https://app.happy.engineering.
func WebURL(base string, terminalPublic []byte) string {
	return strings.TrimRight(base, "/") + "/terminal/connect#key=" + base64.RawURLEncoding.EncodeToString(terminalPublic)
}

// AccountURL is what the QR code of an account link says, which asks for the
// account's secret itself.
func AccountURL(terminalPublic []byte) string {
	return "happy:///account?" + base64.RawURLEncoding.EncodeToString(terminalPublic)
}
