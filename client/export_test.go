package client

const (
	GatherMost = maxGatherTime
	CallsMost  = maxCalls
	LaneMost   = maxLane
)

// Lanes is the number of campaigns with claims under way.
func (c *Client) Lanes() int {
	c.gather.mu.Lock()
	defer c.gather.mu.Unlock()
	return len(c.gather.lanes)
}

// Queued is the number of a campaign's claims that wait for a call.
func (c *Client) Queued(campaignID string) int {
	c.gather.mu.Lock()
	defer c.gather.mu.Unlock()
	if l := c.gather.lanes[campaignID]; l != nil {
		return len(l.queue)
	}
	return 0
}
