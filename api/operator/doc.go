// Package operator answers the routes of operators: campaigns, their
// packets and their stock. MySQL is asked and told through Campaigns,
// Redis is read for the stock alone.
package operator
