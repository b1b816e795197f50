package models

// CampaignSort orders a list of campaigns.
type CampaignSort string

// The orders of a list of campaigns.
const (
	SortByID      CampaignSort = "id"
	SortByBusy    CampaignSort = "busy" // those with claims first, of these the most recently changed first
	SortByLeft    CampaignSort = "left"
	SortByTotal   CampaignSort = "total"
	SortByClaimed CampaignSort = "claimed"
	SortByStatus  CampaignSort = "status"
)

// CampaignQuery selects campaigns.
type CampaignQuery struct {
	Text   string // part of the id or the name, ignoring case; "": any
	Status Status // "": any
	After  string // only campaigns with greater ids; with SortByID only
	Sort   CampaignSort
	Offset int
	Limit  int
}
