package main

import (
	"io"
	"os"
	"strings"
)

// style is how a stream is written to: with or without colours, with or without characters beyond ASCII.
type style struct {
	colors  bool
	unicode bool
}

func (c *cli) style(w io.Writer) style {
	return style{colors: c.colors(w), unicode: unicodeLocale()}
}

// colors follows --color, then NO_COLOR and CLICOLOR_FORCE, then whether a person looks.
func (c *cli) colors(w io.Writer) bool {
	switch {
	case c.color == "always":
		return true
	case c.color == "never", os.Getenv("NO_COLOR") != "":
		return false
	case os.Getenv("CLICOLOR_FORCE") != "" && os.Getenv("CLICOLOR_FORCE") != "0":
		return true
	}
	return isTerminal(w) && os.Getenv("TERM") != "dumb"
}

// unicodeLocale is false when the locale says that the terminal cannot show more than ASCII.
func unicodeLocale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return true
}

// ascii is what stands for a glyph where only ASCII can be shown.
var ascii = strings.NewReplacer("✓", "+", "✗", "x", "⚠", "!", "▸", ">", "│", "|", "→", "->", "─", "-", "·",
	"-", "…", "...",
	"•", "*", "█", "#", "░", ".")

func (s style) text(t string) string {
	if s.unicode {
		return t
	}
	return ascii.Replace(t)
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	bold   = "1"
	dim    = "2"
)

// paint wraps a text in the escape codes of a colour.
func (s style) paint(color, t string) string {
	if t = s.text(t); s.colors {
		return "\x1b[" + color + "m" + t + "\x1b[0m"
	}
	return t
}
