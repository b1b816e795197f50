package models

// CampaignSort orders a list of campaigns.
type CampaignSort string

// The orders of a list of campaigns.
const (
	SortByID      CampaignSort = "id"
	SortByBusy    CampaignSort = "busy" // those with claims first, and of these the last that moved
	SortByLeft    CampaignSort = "left"
	SortByTotal   CampaignSort = "total"
	SortByClaimed CampaignSort = "claimed"
	SortByStatus  CampaignSort = "status"
)

// CampaignQuery selects campaigns.
type CampaignQuery struct {
	Text   string // part of the id or the name, in any case; "": any
	Status Status // "": any
	After  string // campaigns with ids above this; with SortByID only
	Sort   CampaignSort
	Offset int
	Limit  int
}
