package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/happyd/happyd/config"
)

// Limits of the log file.
const (
	logFileMegabytes = 10
	logFileBackups   = 3
)

// newLogger makes the logger that the configuration asks for: standard error
// always, and a file of its own where a platform's service manager keeps none.
func (a *app) newLogger(c config.Log) (*slog.Logger, io.Closer, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, nil, fmt.Errorf("reading log.level: %w", err)
	}
	handler := a.logHandler(c.Format, a.stderr, level)
	path := c.Path()
	if path == "" {
		return slog.New(handler), io.NopCloser(nil), nil
	}
	// The library would make the directory readable for everyone.
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("creating the log's directory: %w", err)
	}
	file := &lumberjack.Logger{Filename: path, MaxSize: logFileMegabytes, MaxBackups: logFileBackups}
	return slog.New(slog.NewMultiHandler(handler, a.logHandler(c.Format, file, level))), file, nil
}

func (a *app) logHandler(format string, w io.Writer, level slog.Level) slog.Handler {
	if format == "json" || format == "auto" && !isTerminal(w) {
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	}
	return tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: "15:04:05", NoColor: !a.colour(w)})
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour tells whether to write escape sequences; see https://no-color.org.
func (a *app) colour(w io.Writer) bool {
	return isTerminal(w) && a.env.Get("NO_COLOR") == "" && a.env.Get("TERM") != "dumb"
}
