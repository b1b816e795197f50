package coalesce

// Queued is the number of claims that wait.
func (c *Coalescer) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting()
}

// Workers is the number of workers that send claims.
func (c *Coalescer) Workers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers
}
