package crypto

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type testLogin struct {
	secret, contentPublic, contentPrivate, machineKey []byte
	legacy, dataKey                                   *Account
}

// login is fixed, so that the derivations can be pinned.
func login(t testing.TB) testLogin {
	t.Helper()
	l := testLogin{secret: repeat(0x11), machineKey: repeat(0x22)}
	public, private, err := ContentKeys(l.secret)
	if err != nil {
		t.Fatal(err)
	}
	l.contentPublic, l.contentPrivate = public[:], private[:]
	if l.legacy, err = NewLegacyAccount(l.secret); err != nil {
		t.Fatal(err)
	}
	if l.dataKey, err = NewDataKeyAccount(l.contentPublic, l.machineKey); err != nil {
		t.Fatal(err)
	}
	return l
}

func repeat(b byte) []byte { return bytes.Repeat([]byte{b}, KeySize) }

// These values may never change: see the note at the top of derive.go.
func TestDerivationsArePinned(t *testing.T) {
	l := login(t)
	keys, err := l.dataKey.Session("happyd-abc")
	if err != nil {
		t.Fatal(err)
	}
	_, machineWrapped, err := l.dataKey.Machine()
	if err != nil {
		t.Fatal(err)
	}
	unwrap := func(wrapped string) string {
		raw, err := base64.StdEncoding.DecodeString(wrapped)
		if err != nil {
			t.Fatal(err)
		}
		key, err := UnwrapKey(l.contentPrivate, raw)
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(key)
	}
	state := l.dataKey.State().(*secretboxSealer)
	for _, tc := range []struct{ name, got, want string }{
		{"legacy fingerprint", l.legacy.Fingerprint(), "4ca86a813f31d689"},
		{"data-key fingerprint", l.dataKey.Fingerprint(), "12d8a03a6f5ec0b4"},
		{"legacy tag", l.legacy.Tag("claude", "s1", 0), "happyd-timb4omrbqx2agw5hwtau5nd"},
		{"data-key tag", l.dataKey.Tag("claude", "s1", 0), "happyd-luo6k5n56cl57uajk3cknf6k"},
		{"next generation's tag", l.dataKey.Tag("claude", "s1", 1), "happyd-vos7vq6kbiaaazhft75divxq"},
		{"session key", unwrap(keys.Wrapped), "b9b07838dde7e6c17264c5a5e46bba514bc040cc8456bd565eb49d003f29ba71"},
		{"session wrap", keys.Wrapped, "AHXACwN1x2eOpLvIz3ayfQHETEx5Kf2IEb9HHpgxlDkudStpC6igTpokGgBPigRUIavXuKPy7O2RHq5ehs6en0uUirqQfbn/kP4/UNsyHYpbiGh5RChrhnxoMo8Twbyz7MS5/dapabIw"},
		{"machine key", unwrap(machineWrapped), hex.EncodeToString(l.machineKey)},
		{"machine wrap", machineWrapped, "AMSzkqY4tn3Ae3WRFUMmfe+4wLsC3N6VVikpnKY49ol/E0NaabZA0KlumrpZYKRIJ9Ic6tMC8W6cc3bXO2iLH8BJEqcv92lq9YPrZc62wmLxcPh63n+bVt5YFCeiqy+/Pk96+oifYUCj"},
		{"state key", hex.EncodeToString(state.key[:]), "94597c817503cbcd361f3b815e1af85c90aec1e3c827242022d1889816e34179"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("derived %q, want %q", tc.got, tc.want)
			}
		})
	}
}

func TestTagsDependOnEverything(t *testing.T) {
	l := login(t)
	otherMachine, err := NewDataKeyAccount(l.contentPublic, repeat(0x23))
	if err != nil {
		t.Fatal(err)
	}
	otherPublic, _, _ := ContentKeys(repeat(0x12))
	otherAccount, err := NewDataKeyAccount(otherPublic[:], l.machineKey)
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(`^happyd-[a-z2-7]{24}$`)
	seen := map[string]string{}
	for name, a := range map[string]*Account{
		"legacy": l.legacy, "data key": l.dataKey, "other machine": otherMachine, "other account": otherAccount,
	} {
		if prior, ok := seen[a.Fingerprint()]; ok {
			t.Errorf("%s and %s share a fingerprint", name, prior)
		}
		seen[a.Fingerprint()] = name
		for _, in := range []struct {
			provider, session string
			generation        int
		}{{"claude", "s1", 0}, {"claude", "s1", 1}, {"claude", "s2", 0}, {"codex", "s1", 0}, {"claude", "s", 10}, {"claudes", "1", 0}} {
			tag := a.Tag(in.provider, in.session, in.generation)
			if !shape.MatchString(tag) {
				t.Errorf("tag %q has an unexpected shape", tag)
			}
			if tag != a.Tag(in.provider, in.session, in.generation) {
				t.Errorf("tag for %v is not stable", in)
			}
			if prior, ok := seen[tag]; ok {
				t.Errorf("%s %v and %s share the tag %q", name, in, prior, tag)
			}
			seen[tag] = fmt.Sprint(name, in)
		}
	}
}

func TestSessionKeys(t *testing.T) {
	l := login(t)
	for name, a := range map[string]*Account{"legacy": l.legacy, "data key": l.dataKey} {
		t.Run(name, func(t *testing.T) {
			one, err := a.Session("one")
			if err != nil {
				t.Fatal(err)
			}
			again, err := a.Session("one")
			if err != nil {
				t.Fatal(err)
			}
			two, err := a.Session("two")
			if err != nil {
				t.Fatal(err)
			}
			if one.Wrapped != again.Wrapped {
				t.Error("the wrap of one session is not reproducible")
			}
			roundTrip(t, one.Sealer, again.Sealer)
			roundTrip(t, one.Blob, again.Blob)
			if a.Legacy() {
				if one.Wrapped != "" {
					t.Error("a legacy session has a wrapped key")
				}
				return
			}
			if raw, _ := base64.StdEncoding.DecodeString(one.Wrapped); len(raw) != WrappedKeySize {
				t.Errorf("wrapped key has %d bytes", len(raw))
			}
			if one.Wrapped == two.Wrapped || one.Wrapped[:48] == two.Wrapped[:48] {
				t.Error("two sessions share a wrap or its ephemeral key")
			}
			sealed, err := one.Sealer.Seal([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := two.Sealer.Open(sealed); !errors.Is(err, ErrOpen) {
				t.Errorf("another session's key opens it: %v", err)
			}
		})
	}
}

func roundTrip(t *testing.T, from, to Sealer) {
	t.Helper()
	sealed, err := from.Seal([]byte("some text"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := to.Open(sealed); err != nil || string(plain) != "some text" {
		t.Errorf("opened %q, %v", plain, err)
	}
}

func TestMachineAndStateAreApart(t *testing.T) {
	l := login(t)
	for name, a := range map[string]*Account{"legacy": l.legacy, "data key": l.dataKey} {
		t.Run(name, func(t *testing.T) {
			machine, wrapped, err := a.Machine()
			if err != nil {
				t.Fatal(err)
			}
			if (wrapped == "") != a.Legacy() {
				t.Errorf("machine key wrapped as %q", wrapped)
			}
			again, _, err := a.Machine()
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, machine, again)
			roundTrip(t, a.State(), a.State())
			sealed, err := a.State().Seal([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := machine.Open(sealed); !errors.Is(err, ErrOpen) {
				t.Errorf("the machine's key opens local state: %v", err)
			}
		})
	}
}

func TestClosedAccount(t *testing.T) {
	l := login(t)
	for name, a := range map[string]*Account{"legacy": l.legacy, "data key": l.dataKey} {
		t.Run(name, func(t *testing.T) {
			before, err := a.Session("tag")
			if err != nil {
				t.Fatal(err)
			}
			fingerprint := a.Fingerprint()
			a.Close()
			a.Close()
			if a.key != [KeySize]byte{} || a.contentPublic != [KeySize]byte{} {
				t.Error("keys are still there after Close")
			}
			roundTrip(t, before.Sealer, before.Sealer)
			if _, err := a.Session("tag"); !errors.Is(err, ErrClosed) {
				t.Errorf("Session: %v", err)
			}
			if _, _, err := a.Machine(); !errors.Is(err, ErrClosed) {
				t.Errorf("Machine: %v", err)
			}
			if _, err := a.State().Seal(nil); !errors.Is(err, ErrClosed) {
				t.Errorf("State().Seal: %v", err)
			}
			if _, err := a.State().Open(nil); !errors.Is(err, ErrClosed) {
				t.Errorf("State().Open: %v", err)
			}
			if tag := a.Tag("claude", "s", 0); tag != "" {
				t.Errorf("Tag gave %q", tag)
			}
			if a.Fingerprint() != fingerprint {
				t.Error("the fingerprint changed")
			}
		})
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	l := login(t)
	weak := make([]byte, KeySize)
	weak[0] = 1
	for name, err := range map[string]error{
		"short secret":       second(NewLegacyAccount(l.secret[:31])),
		"no secret":          second(NewLegacyAccount(nil)),
		"zero secret":        second(NewLegacyAccount(make([]byte, KeySize))),
		"short content key":  second(NewDataKeyAccount(l.contentPublic[:5], l.machineKey)),
		"zero content key":   second(NewDataKeyAccount(make([]byte, KeySize), l.machineKey)),
		"weak content key":   second(NewDataKeyAccount(weak, l.machineKey)),
		"long machine key":   second(NewDataKeyAccount(l.contentPublic, append(repeat(1), 1))),
		"zero machine key":   second(NewDataKeyAccount(l.contentPublic, make([]byte, KeySize))),
		"wrap to a weak key": second(WrapKey(weak, l.machineKey, nil)),
		"wrap a short key":   second(WrapKey(l.contentPublic, l.machineKey[:3], nil)),
		"short blob key":     second(SealBlob(l.secret[:3], nil, nil)),
		"open short blob":    second(OpenBlob(l.secret[:3], nil)),
		"short data key":     second(NewDataKeySealer(nil, nil)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if SignKey(l.secret[:31]) != nil {
		t.Error("SignKey takes a short secret")
	}
	if public, signature := AuthChallenge(nil, []byte("x")); public != nil || signature != nil {
		t.Error("AuthChallenge takes no secret")
	}
}

func second[T any](_ T, err error) error { return err }

func TestNothingPrintsKeys(t *testing.T) {
	l := login(t)
	keys, err := l.dataKey.Session("tag")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{l.legacy, l.dataKey, l.dataKey.State(), keys.Sealer, keys.Blob, PairingResult{Secret: l.secret}} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
		log.Info("value", "v", v)
	}
	for _, err := range []error{
		second(NewLegacyAccount([]byte("sesame"))),
		second(OpenPairing(l.secret, []byte("sesame"))),
		second(UnwrapKey(l.secret, []byte("sesame"))),
	} {
		fmt.Fprintln(&out, err)
	}
	for _, leak := range []string{
		"sesame", "1111", "17 17", "17, 17", "0x11", "2222", "34 34", "0x22",
		base64.StdEncoding.EncodeToString(l.secret)[:12], base64.StdEncoding.EncodeToString(l.machineKey)[:12],
	} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q is printed:\n%s", leak, out.String())
		}
	}
}

func TestAccountIsSafeForConcurrentUse(t *testing.T) {
	l := login(t)
	keys, err := l.dataKey.Session("shared")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				l.dataKey.Tag("claude", "s", 0)
				roundTrip(t, keys.Sealer, keys.Sealer)
				roundTrip(t, keys.Blob, keys.Blob)
				if _, err := l.dataKey.Session("shared"); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(l.dataKey.Close)
	wg.Wait()
}

func TestSealersProperties(t *testing.T) {
	l := login(t)
	keys, err := l.dataKey.Session("tag")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]Sealer{"data key": keys.Sealer, "secretbox": keys.Blob} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
				sealed, err := s.Seal(plain)
				if err != nil {
					t.Fatal(err)
				}
				other, err := s.Seal(plain)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(sealed, other) {
					t.Fatal("two seals of one text are equal")
				}
				opened, err := s.Open(sealed)
				if err != nil || !bytes.Equal(opened, plain) {
					t.Fatalf("opened %x, %v", opened, err)
				}
				at := rapid.IntRange(0, len(sealed)-1).Draw(t, "at")
				damaged := bytes.Clone(sealed)
				damaged[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				if _, err := s.Open(damaged); !errors.Is(err, ErrOpen) {
					t.Fatalf("damage at byte %d is not noticed: %v", at, err)
				}
				if _, err := s.Open(sealed[:at]); !errors.Is(err, ErrOpen) {
					t.Fatalf("a cut at byte %d is not noticed: %v", at, err)
				}
			})
		})
	}
}
