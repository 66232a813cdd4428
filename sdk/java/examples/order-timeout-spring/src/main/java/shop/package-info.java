/** A shop whose unpaid orders are called off after half an hour. */
package shop;
