package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// keyBytes is the length of every key in a credentials file.
const keyBytes = 32

// maxCredentials bounds a credentials file; real ones have some 300 bytes.
const maxCredentials = 64 << 10

// Credentials are an account's token and keys, in one of two variants: with
// Secret (legacy: it opens everything of the account), or with PublicKey and
// MachineKey (data key: this machine can write, and read nothing back).
//
// Printing or logging a value shows neither token nor keys.
type Credentials struct {
	Token      string // bearer token for the server
	Secret     []byte // 32 bytes in the legacy variant, else nil
	PublicKey  []byte // 32 bytes in the data key variant, else nil: the account's content key
	MachineKey []byte // 32 bytes in the data key variant, else nil
	Path       string // the file that they came from
}

// Legacy tells which variant the credentials are.
func (c Credentials) Legacy() bool { return len(c.Secret) > 0 }

// Variant names the variant: "legacy" or "dataKey".
func (c Credentials) Variant() string {
	if c.Legacy() {
		return "legacy"
	}
	return "dataKey"
}

// String describes the credentials without their contents.
func (c Credentials) String() string {
	return fmt.Sprintf("%s credentials of %s", c.Variant(), c.Path)
}

// GoString is String, so that %#v shows no keys either.
func (c Credentials) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer].
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// credentialsFile is the JSON that the happy CLI reads and writes.
type credentialsFile struct {
	Encryption *encryptionKeys `json:"encryption,omitempty"`
	Secret     string          `json:"secret,omitempty"`
	Token      string          `json:"token"`
}

type encryptionKeys struct {
	PublicKey  string `json:"publicKey"`
	MachineKey string `json:"machineKey"`
}

// CredentialsError says why a credentials file cannot be used, and what its
// owner can do about it.
type CredentialsError struct {
	Path string
	Err  error  // what is wrong; matches fs.ErrNotExist for a missing file
	Fix  string // what to do
}

func (e *CredentialsError) Error() string {
	return fmt.Sprintf("credentials %s: %v; %s", e.Path, e.Err, e.Fix)
}

func (e *CredentialsError) Unwrap() error { return e.Err }

const fixLogin = "log in again with `happy auth login`"

// LoadCredentials reads a credentials file. One that other users could read is
// refused (except on Windows, where the mode says nothing). Every error is a
// [*CredentialsError] and quotes nothing of the file.
func LoadCredentials(path string) (Credentials, error) {
	refuse := func(fix string, err error) (Credentials, error) {
		return Credentials{}, &CredentialsError{Path: path, Err: err, Fix: fix}
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("log in with `happy auth login`, or name the file in account.credentials", fs.ErrNotExist)
	case err != nil:
		return refuse("make the file readable for this user", bare(err))
	}
	defer f.Close()
	// The mode is read from the open file: it is the one whose bytes follow.
	info, err := f.Stat()
	switch {
	case err != nil:
		return refuse("check the disk", bare(err))
	case !info.Mode().IsRegular():
		return refuse("name a file in account.credentials", errors.New("is not a regular file"))
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return refuse(fmt.Sprintf("protect it with `chmod 600 %s`", shellQuote(path)),
			fmt.Errorf("mode is %04o, so other users may read the account's keys", info.Mode().Perm()))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err != nil {
		return refuse("check the disk", bare(err))
	}
	if len(data) > maxCredentials {
		return refuse(fixLogin, errors.New("file is too large for credentials"))
	}
	c, err := parseCredentials(data)
	if err != nil {
		return refuse(fixLogin, err)
	}
	c.Path = path
	return c, nil
}

func parseCredentials(data []byte) (Credentials, error) {
	var f credentialsFile
	// The decoder's own errors may quote the input, so they are not passed on.
	if json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &f) != nil {
		return Credentials{}, errors.New("file is not the JSON that the happy CLI writes")
	}
	c := Credentials{Token: f.Token}
	if c.Token == "" || strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Credentials{}, errors.New(`"token" is missing or malformed`)
	}
	var err error
	switch {
	case f.Secret != "":
		// A file with both was upgraded and downgraded; the CLI prefers this.
		c.Secret, err = decodeKey("secret", f.Secret)
	case f.Encryption != nil:
		if c.PublicKey, err = decodeKey("encryption.publicKey", f.Encryption.PublicKey); err == nil {
			c.MachineKey, err = decodeKey("encryption.machineKey", f.Encryption.MachineKey)
		}
	default:
		err = errors.New(`neither "secret" nor "encryption" is there`)
	}
	if err != nil {
		return Credentials{}, err
	}
	return c, nil
}

func decodeKey(name, text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not base64", name)
	}
	if len(key) != keyBytes {
		return nil, fmt.Errorf("%q has %d bytes instead of %d", name, len(key), keyBytes)
	}
	return key, nil
}

// SaveCredentials writes a credentials file as the happy CLI would, with mode
// 0600 and in one step: whoever reads path sees the old file or the new one.
// c.Path is not used.
func SaveCredentials(path string, c Credentials) error {
	f := credentialsFile{Token: c.Token}
	if c.Legacy() {
		f.Secret = base64.StdEncoding.EncodeToString(c.Secret)
	} else {
		f.Encryption = &encryptionKeys{
			PublicKey:  base64.StdEncoding.EncodeToString(c.PublicKey),
			MachineKey: base64.StdEncoding.EncodeToString(c.MachineKey),
		}
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding credentials: %w", err)
	}
	if _, err := parseCredentials(data); err != nil {
		return fmt.Errorf("refusing to write credentials: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("writing credentials: %w", err)
	}
	if err := writeFileAtomic(path, append(data, '\n')); err != nil {
		return fmt.Errorf("writing credentials: %w", err)
	}
	return nil
}

// writeFileAtomic replaces a file by one with mode 0600.
func writeFileAtomic(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".happyd-*.tmp") // created with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails once the rename has happened
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Stamp identifies one state of a file. The zero Stamp is that of a file that
// is not there. Two equal stamps mean that nothing needs to be read again.
type Stamp struct {
	ModTime time.Time
	Size    int64
	Inode   uint64 // 0 on Windows
	Mode    fs.FileMode
}

// CredentialsStamp returns the state of a credentials file for a caller that
// polls it for a new login. The mode is part of it: a chmod may be the fix
// that was asked for.
func CredentialsStamp(path string) Stamp {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}
	}
	// UTC drops the pointer that would make == compare locations.
	return Stamp{ModTime: info.ModTime().UTC(), Size: info.Size(), Inode: inode(info), Mode: info.Mode()}
}

// bare drops the path from an error of package os: it is already named.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func shellQuote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-+,:@%", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
