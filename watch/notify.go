package watch

import (
	"github.com/fsnotify/fsnotify"
)

// A Notifier hears of changes in directories from the kernel. It is what the watcher needs of fsnotify, and what a test can replace.
type Notifier interface {
	// Add listens to a directory (not to those below it); adding it again is harmless.
	Add(dir string) error
	// Remove stops listening.
	Remove(dir string) error
	// Events yields what happened. It is closed when the notifier can do no more.
	Events() <-chan fsnotify.Event
	// Errors yields errors; fsnotify.ErrEventOverflow says that events were lost.
	Errors() <-chan error
	Close() error
}

// kernelNotifier is the Notifier of this system.
type kernelNotifier struct{ w *fsnotify.Watcher }

func newKernelNotifier() (Notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return kernelNotifier{w}, nil
}

func (k kernelNotifier) Add(dir string) error          { return k.w.Add(dir) }
func (k kernelNotifier) Remove(dir string) error       { return k.w.Remove(dir) }
func (k kernelNotifier) Events() <-chan fsnotify.Event { return k.w.Events }
func (k kernelNotifier) Errors() <-chan error          { return k.w.Errors }
func (k kernelNotifier) Close() error                  { return k.w.Close() }
