package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, keyBytes) }

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func TestLoadCredentials(t *testing.T) {
	tests := map[string]struct {
		text string
		want Credentials
		err  string
	}{
		"legacy":           {fmt.Sprintf(`{"secret":%q,"token":"T"}`, b64(key(1))), Credentials{Token: "T", Secret: key(1)}, ""},
		"data key":         {fmt.Sprintf(`{"encryption":{"publicKey":%q,"machineKey":%q},"token":"T"}`, b64(key(2)), b64(key(3))), Credentials{Token: "T", PublicKey: key(2), MachineKey: key(3)}, ""},
		"secret wins":      {fmt.Sprintf(`{"encryption":{"publicKey":%q,"machineKey":%q},"secret":%q,"token":"T"}`, b64(key(2)), b64(key(3)), b64(key(1))), Credentials{Token: "T", Secret: key(1)}, ""},
		"unknown fields":   {fmt.Sprintf(`{"secret":%q,"token":"T","later":[1]}`, b64(key(1))), Credentials{Token: "T", Secret: key(1)}, ""},
		"empty":            {"", Credentials{}, "not the JSON"},
		"half written":     {`{"secret":"SECRETSECRET`, Credentials{}, "not the JSON"},
		"wrong type":       {`{"secret":1,"token":"TOPSECRET"}`, Credentials{}, "not the JSON"},
		"no token":         {fmt.Sprintf(`{"secret":%q}`, b64(key(1))), Credentials{}, `"token" is missing`},
		"token with break": {fmt.Sprintf(`{"secret":%q,"token":"TOP\nSECRET"}`, b64(key(1))), Credentials{}, `"token" is missing or malformed`},
		"no keys":          {`{"token":"TOPSECRET"}`, Credentials{}, "neither"},
		"short key":        {`{"secret":"U0VDUkVU","token":"T"}`, Credentials{}, `"secret" has 6 bytes instead of 32`},
		"not base64":       {`{"secret":"*SECRET*","token":"T"}`, Credentials{}, `"secret" is not base64`},
		"half a data key":  {fmt.Sprintf(`{"encryption":{"publicKey":%q},"token":"T"}`, b64(key(2))), Credentials{}, `"encryption.machineKey" has 0 bytes`},
		"too large":        {strings.Repeat(" ", maxCredentials+1), Credentials{}, "too large"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "access.key")
			write(t, path, tt.text)
			got, err := LoadCredentials(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				if strings.Contains(strings.ToUpper(err.Error()), "TOPSECRET") || strings.Contains(err.Error(), "SECRETSECRET") || strings.Contains(err.Error(), "*SECRET*") {
					t.Errorf("the error quotes the file: %v", err)
				}
				var ce *CredentialsError
				if !errors.As(err, &ce) || ce.Fix == "" {
					t.Errorf("no fix in %#v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Path = path
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got token %q secret %x public %x machine %x", got.Token, got.Secret, got.PublicKey, got.MachineKey)
			}
		})
	}
}

func TestCredentialsMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes mean nothing on Windows")
	}
	path := filepath.Join(t.TempDir(), "my access.key")
	write(t, path, fmt.Sprintf(`{"secret":%q,"token":"T"}`, b64(key(1))))
	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o644: false, 0o640: false, 0o604: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadCredentials(path)
		if (err == nil) != ok {
			t.Errorf("mode %04o: %v", mode, err)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("mode is %04o", mode)) ||
			err != nil && !strings.Contains(err.Error(), "chmod 600 '"+path+"'") {
			t.Errorf("mode %04o: the error lacks the fix: %v", mode, err)
		}
	}
}

func TestCredentialsAbsentOrDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadCredentials(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := LoadCredentials(dir); err == nil {
		t.Error("a directory was accepted")
	}
}

func TestCredentialsPrintNothingSecret(t *testing.T) {
	c := Credentials{Token: "TOKEN", Secret: key('S'), Path: "/p"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, c); s != "legacy credentials of /p" {
			t.Errorf("%s prints %q", format, s)
		}
	}
}

func TestSaveCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "access.key")
	for _, c := range []Credentials{
		{Token: "T1", Secret: key(1)},
		{Token: "T2", PublicKey: key(2), MachineKey: key(3)},
	} {
		if err := SaveCredentials(path, c); err != nil {
			t.Fatal(err)
		}
		got, err := LoadCredentials(path)
		if err != nil {
			t.Fatal(err)
		}
		c.Path = path
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s differs after a round trip", c.Variant())
		}
	}
	if err := SaveCredentials(path, Credentials{Token: "T", Secret: []byte("short")}); err == nil {
		t.Error("malformed credentials were written")
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestCredentialsStamp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.key")
	if CredentialsStamp(path) != (Stamp{}) {
		t.Error("an absent file has a stamp")
	}
	if err := SaveCredentials(path, Credentials{Token: "T1", Secret: key(1)}); err != nil {
		t.Fatal(err)
	}
	first := CredentialsStamp(path)
	if first == (Stamp{}) || first != CredentialsStamp(path) {
		t.Error("the stamp of an unchanged file is not stable")
	}
	if err := os.Chtimes(path, time.Time{}, first.ModTime.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if CredentialsStamp(path) == first {
		t.Error("a later time was not noticed")
	}
}
