package wire

// Page cuts a list that was read with one more item than a page. next is
// the next page's cursor, "" on the last page.
func Page[T any](items []T, limit int, cursorOf func(last *T) string) (page []T, next string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], cursorOf(&items[limit-1])
}
