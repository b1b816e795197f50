package wire

// Page cuts a list, of which one more item was read than fits on a page.
// next is the cursor of the next page, "" on the last.
func Page[T any](items []T, limit int, cursorOf func(last *T) string) (page []T, next string) {
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], cursorOf(&items[limit-1])
}
