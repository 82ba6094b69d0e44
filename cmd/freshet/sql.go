package main

import "strings"

// eachTop calls visit with the places of a SQL text that are outside of quotes and brackets, until it returns false.
func eachTop(text string, visit func(at int) bool) {
	var open []byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\'', '"', '`':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return
			}
			i += end + 1
			continue
		case '(', '[':
			open = append(open, c)
		case '<':
			if typeBracket(text, i) {
				open = append(open, c)
			}
		case ')', ']', '>':
			if n := len(open); n > 0 && (c == '>') == (open[n-1] == '<') {
				open = open[:n-1]
			}
		}
		if len(open) == 0 && !visit(i) {
			return
		}
	}
}

// typeBracket reports whether the < at this place opens the parameters of a type: array<, map<, struct<.
func typeBracket(text string, at int) bool {
	before := strings.ToLower(text[:at])
	return strings.HasSuffix(before, "array") || strings.HasSuffix(before, "map") || strings.HasSuffix(before, "struct")
}

// splitSQL splits a SQL text at a character outside of quotes and brackets.
func splitSQL(text string, at byte) (parts []string) {
	from := 0
	eachTop(text, func(i int) bool {
		if text[i] == at {
			parts = append(parts, text[from:i])
			from = i + 1
		}
		return true
	})
	return append(parts, text[from:])
}

// keywordAt reports whether a word, in any case, stands at this place of a text, and nothing that would make it longer
// before or behind.
func keywordAt(text string, at int, word string) bool {
	end := at + len(word)
	return end <= len(text) && strings.EqualFold(text[at:end], word) &&
		(at == 0 || !isWordByte(text[at-1])) && (end == len(text) || !isWordByte(text[end]))
}

func isWordByte(c byte) bool {
	return c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
