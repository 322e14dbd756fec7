package crypto

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
)

type newSealer = func(key []byte, random io.Reader) (Sealer, error)

func TestSealUsesTheGivenRandomness(t *testing.T) {
	for name, create := range map[string]newSealer{"data key": NewDataKeySealer, "secretbox": NewSecretboxSealer} {
		t.Run(name, func(t *testing.T) {
			seal := func(random io.Reader) ([]byte, error) {
				s, err := create(repeat(7), random)
				if err != nil {
					t.Fatal(err)
				}
				return s.Seal([]byte("text"))
			}
			one, err := seal(bytes.NewReader(repeat(1)))
			if err != nil {
				t.Fatal(err)
			}
			same, err := seal(bytes.NewReader(repeat(1)))
			if err != nil || !bytes.Equal(one, same) {
				t.Errorf("the same randomness gives another ciphertext (%v)", err)
			}
			broken := errors.New("no entropy")
			if _, err := seal(iotest.ErrReader(broken)); !errors.Is(err, broken) {
				t.Errorf("a failing source of randomness: %v", err)
			}
			if _, err := seal(bytes.NewReader(repeat(1)[:5])); err == nil {
				t.Error("a short read of randomness seals")
			}
		})
	}
}

func TestSealDoesNotTouchThePlaintext(t *testing.T) {
	for name, create := range map[string]newSealer{"data key": NewDataKeySealer, "secretbox": NewSecretboxSealer} {
		t.Run(name, func(t *testing.T) {
			s, err := create(repeat(7), nil)
			if err != nil {
				t.Fatal(err)
			}
			plain := []byte("some text")
			sealed, err := s.Seal(plain)
			if err != nil {
				t.Fatal(err)
			}
			before := bytes.Clone(sealed)
			if _, err := s.Open(sealed); err != nil {
				t.Fatal(err)
			}
			if string(plain) != "some text" || !bytes.Equal(sealed, before) {
				t.Error("an argument was written to")
			}
		})
	}
}

func TestWrapKey(t *testing.T) {
	public, private, err := ContentKeys(repeat(3))
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := WrapKey(public[:], repeat(9), nil)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := UnwrapKey(private[:], wrapped); err != nil || !bytes.Equal(key, repeat(9)) {
		t.Errorf("unwrapped %x, %v", key, err)
	}
	for i := range wrapped {
		damaged := bytes.Clone(wrapped)
		damaged[i] ^= 4
		if _, err := UnwrapKey(private[:], damaged); !errors.Is(err, ErrOpen) {
			t.Errorf("damage at byte %d: %v", i, err)
		}
		if _, err := UnwrapKey(private[:], wrapped[:i]); !errors.Is(err, ErrOpen) {
			t.Errorf("cut at byte %d: %v", i, err)
		}
	}
	if _, err := UnwrapKey(repeat(5), wrapped); !errors.Is(err, ErrOpen) {
		t.Errorf("another account's key: %v", err)
	}
	if _, err := UnwrapKey(nil, wrapped); err == nil {
		t.Error("no private key unwraps")
	}
	if _, err := WrapKey(public[:], repeat(9), bytes.NewReader(make([]byte, 40))); err == nil {
		t.Error("a short read of randomness wraps")
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, v := range []struct {
		name   string
		create newSealer
	}{{"datakey", NewDataKeySealer}, {"secretbox", NewSecretboxSealer}} {
		for _, size := range []int{300, 50 << 10} {
			b.Run(fmt.Sprintf("%s/%d", v.name, size), func(b *testing.B) {
				s, err := v.create(repeat(7), rand.Reader)
				if err != nil {
					b.Fatal(err)
				}
				plain := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Seal(plain); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkSession(b *testing.B) {
	l := login(b)
	for b.Loop() {
		if _, err := l.dataKey.Session("tag"); err != nil {
			b.Fatal(err)
		}
	}
}
