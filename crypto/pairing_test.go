package crypto

import (
	"bytes"
	"errors"
	"testing"
)

func TestPairing(t *testing.T) {
	public, secret, err := NewTerminalKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := func(plain []byte) []byte {
		b, err := sealBundle(nil, public, plain, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tc := range []struct {
		name     string
		response []byte
		want     PairingResult
		err      error
	}{
		{"full login", raw(repeat(8)), PairingResult{Secret: repeat(8)}, nil},
		{"a secret that begins with zero", raw(append([]byte{0}, repeat(8)[1:]...)), PairingResult{Secret: append([]byte{0}, repeat(8)[1:]...)}, nil},
		{"content key", raw(append([]byte{0}, repeat(8)...)), PairingResult{ContentPublicKey: repeat(8)}, nil},
		{"later version", raw(append([]byte{1}, repeat(8)...)), PairingResult{}, ErrPairing},
		{"short", raw([]byte{0, 1}), PairingResult{}, ErrPairing},
		{"empty", raw(nil), PairingResult{}, ErrPairing},
		{"nothing", nil, PairingResult{}, ErrOpen},
		{"cut", raw(repeat(8))[:40], PairingResult{}, ErrOpen},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := OpenPairing(secret, tc.response)
			if !errors.Is(err, tc.err) || !bytes.Equal(got.Secret, tc.want.Secret) || !bytes.Equal(got.ContentPublicKey, tc.want.ContentPublicKey) {
				t.Errorf("got %v, %v; want %v, %v", got, err, tc.want, tc.err)
			}
		})
	}
	if _, err := OpenPairing(repeat(1), raw(repeat(8))); !errors.Is(err, ErrOpen) {
		t.Errorf("another terminal opens it: %v", err)
	}
}

func TestSealPairingRefusesNonsense(t *testing.T) {
	public, _, err := NewTerminalKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, grant := range map[string]PairingResult{
		"nothing":      {},
		"both":         {Secret: repeat(1), ContentPublicKey: repeat(2)},
		"short secret": {Secret: []byte("x")},
		"short key":    {ContentPublicKey: []byte("x")},
	} {
		if _, err := SealPairing(public, grant, nil); err == nil {
			t.Errorf("%s is sealed", name)
		}
	}
	if _, _, err := NewTerminalKey(bytes.NewReader(nil)); err == nil {
		t.Error("a terminal key without randomness")
	}
}
