package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Env is the machine as the configuration sees it. Tests, the demo and
// `happyd map --home` put another one in its place.
type Env struct {
	// GOOS selects the platform's conventions ("linux", "darwin", "windows", …).
	GOOS string
	// Home is the user's home directory, absolute.
	Home string
	// Lookup returns an environment variable; nil means that none is set.
	Lookup func(name string) (string, bool)
}

// OSEnv is the machine that the process runs on.
func OSEnv() Env {
	home, err := os.UserHomeDir()
	if err != nil {
		// A service may run without HOME. The root is a place where nothing of
		// ours exists and nothing can be created by accident, so that the
		// errors that follow name the paths that need to be configured.
		home = string(filepath.Separator)
	}
	return Env{GOOS: runtime.GOOS, Home: home, Lookup: os.LookupEnv}
}

// HomeEnv is a machine whose home directory is home and in which no
// environment variable is set: everything stays below that directory.
func HomeEnv(home string) Env { return Env{GOOS: runtime.GOOS, Home: home} }

// Get returns an environment variable, "" when it is not set.
func (e Env) Get(name string) string {
	v, _ := e.lookup(name)
	return v
}

func (e Env) lookup(name string) (string, bool) {
	if e.Lookup == nil {
		return "", false
	}
	return e.Lookup(name)
}

// Dirs are the places that the platform foresees for a program's files.
type Dirs struct {
	Config  string // the directory of config.yaml
	State   string // cursors, queue, socket: may be deleted
	Data    string // the embedded relay's data and account: must not
	LogFile string // a path, or NoLogFile where standard error is kept anyway
}

// Dirs returns the platform's places for happyd.
func (e Env) Dirs() Dirs {
	switch e.GOOS {
	case "darwin":
		app := filepath.Join(e.Home, "Library", "Application Support", "happyd")
		return Dirs{
			Config: app,
			State:  filepath.Join(app, "state"),
			Data:   filepath.Join(app, "data"),
			// launchd never rotates what it captures, so a file of our own.
			LogFile: filepath.Join(e.Home, "Library", "Logs", "happyd", "happyd.log"),
		}
	case "windows":
		local := e.Get("LOCALAPPDATA")
		if local == "" {
			local = filepath.Join(e.Home, "AppData", "Local")
		}
		app := filepath.Join(local, "happyd")
		return Dirs{
			Config:  app,
			State:   filepath.Join(app, "state"),
			Data:    filepath.Join(app, "data"),
			LogFile: filepath.Join(app, "logs", "happyd.log"),
		}
	}
	return Dirs{
		Config:  filepath.Join(e.xdg("XDG_CONFIG_HOME", ".config"), "happyd"),
		State:   filepath.Join(e.xdg("XDG_STATE_HOME", ".local/state"), "happyd"),
		Data:    filepath.Join(e.xdg("XDG_DATA_HOME", ".local/share"), "happyd"),
		LogFile: NoLogFile,
	}
}

// LockDir is where the locks lie that keep two daemons off one agent's home.
// It does not depend on the configuration: two daemons with two state
// directories are exactly what the locks are for.
func (e Env) LockDir() string { return filepath.Join(e.Dirs().State, "locks") }

// DefaultPath is the configuration file that is read when none is named.
func DefaultPath(env Env) string { return filepath.Join(env.Dirs().Config, "config.yaml") }

// xdg follows the base directory specification: relative values are ignored.
func (e Env) xdg(name, fallback string) string {
	if v := e.Get(name); filepath.IsAbs(v) {
		return v
	}
	return filepath.Join(e.Home, filepath.FromSlash(fallback))
}

// homeOf returns the directory that a variable names, else one in the home.
func (e Env) homeOf(name, fallback string) string {
	if v := e.Get(name); v != "" {
		return e.abs(v, "")
	}
	return filepath.Join(e.Home, fallback)
}

// expandHome replaces a leading "~" by the home directory.
func (e Env) expandHome(path string) string {
	if path == "~" {
		return e.Home
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(e.Home, rest)
	}
	if rest, ok := strings.CutPrefix(path, `~\`); ok && e.GOOS == "windows" {
		return filepath.Join(e.Home, rest)
	}
	return path
}

// abs makes a path absolute: "~" is the home directory, anything relative is
// relative to dir, or to the working directory when dir is empty. "" stays "".
func (e Env) abs(path, dir string) string {
	if path == "" {
		return ""
	}
	path = e.expandHome(path)
	if !filepath.IsAbs(path) && dir != "" {
		path = filepath.Join(dir, path)
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return filepath.Clean(path)
}
