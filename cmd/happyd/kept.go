package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// keptStream is an input that may have to be sent again: it is read once, by one goroutine, into a file from which every attempt
// reads it anew. An attempt that failed may still be reading its body; that takes nothing from the next one.
type keptStream struct {
	file *os.File

	mu    sync.Mutex
	size  int64
	err   error         // what ended the input: io.EOF, or its failure
	grown chan struct{} // closed and replaced when size or err changed
}

// keepStream begins to read in, which ends with the process at the latest.
func keepStream(in io.Reader) (*keptStream, error) {
	f, err := os.CreateTemp("", "happyd-stream-")
	if err != nil {
		return nil, fmt.Errorf("keep the stream: %w", err)
	}
	// Where the system allows it, the file has no name from here on and cannot be left behind.
	_ = os.Remove(f.Name())
	k := &keptStream{file: f, grown: make(chan struct{})}
	go k.fill(in)
	return k, nil
}

func (k *keptStream) fill(in io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, werr := k.file.Write(buf[:n]); werr != nil {
				n, err = 0, fmt.Errorf("keep the stream: %w", werr)
			}
		}
		k.mu.Lock()
		k.size += int64(n)
		k.err = err
		close(k.grown)
		k.grown = make(chan struct{})
		k.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// failed is why the input broke off; nil while it goes on and at its proper end.
func (k *keptStream) failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(k.err, io.EOF) {
		return nil
	}
	return k.err
}

// reader reads the whole stream from its start, as it grows, until ctx ends.
func (k *keptStream) reader(ctx context.Context) io.Reader { return &keptReader{k: k, ctx: ctx} }

type keptReader struct {
	k   *keptStream
	ctx context.Context
	off int64
}

func (r *keptReader) Read(p []byte) (int, error) {
	for {
		r.k.mu.Lock()
		size, err, grown := r.k.size, r.k.err, r.k.grown
		r.k.mu.Unlock()
		if r.off < size {
			n, err := r.k.file.ReadAt(p[:min(int64(len(p)), size-r.off)], r.off)
			r.off += int64(n)
			return n, err
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-grown:
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
}

func (k *keptStream) close() error {
	err := k.file.Close()
	if rerr := os.Remove(k.file.Name()); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}
