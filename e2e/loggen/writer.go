package loggen

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Writer puts writes below a directory, at a pace, some of them in two parts.
type Writer struct {
	Dir  string        // projects/
	Pace time.Duration // mean pause between writes
	Seed uint64
}

// Run writes everything, or until ctx ends.
func (w Writer) Run(ctx context.Context, all []Write) error {
	rng := rand.New(rand.NewPCG(w.Seed, 78))
	pause := func(mean time.Duration) {
		if mean <= 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.Int64N(int64(2 * mean)))):
		}
	}
	for i, one := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		path := filepath.Join(w.Dir, filepath.FromSlash(one.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing a log: %w", err)
		}
		if one.Replace {
			if err := replace(path, one.Data); err != nil {
				return err
			}
		} else {
			cut := len(one.Data)
			if rng.IntN(4) == 0 && !one.Quick {
				cut = rng.IntN(len(one.Data))
			}
			if err := appendTo(path, one.Data[:cut]); err != nil {
				return err
			}
			if cut < len(one.Data) {
				pause(w.Pace)
				if err := appendTo(path, one.Data[cut:]); err != nil {
					return err
				}
			}
		}
		if i+1 == len(all) || !all[i+1].Quick {
			pause(w.Pace)
		}
	}
	return nil
}

func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".tmp", data, 0o644); err != nil {
		return fmt.Errorf("writing a sidecar file: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("writing a sidecar file: %w", err)
	}
	return nil
}

func appendTo(path string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing a log: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("writing a log: %w", err)
	}
	return nil
}
