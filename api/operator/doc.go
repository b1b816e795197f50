// Package operator has the routes for operators: campaigns, their packets
// and their stock. It reads and changes MySQL through Campaigns. It reads
// Redis only for the stock.
package operator
