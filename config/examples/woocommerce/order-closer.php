<?php
/**
 * Plugin Name: Keys for order-closer
 * Description: Tells order-closer, through Redis, when an unpaid order is to be cancelled, and leaves the cancelling to it.
 * Requires Plugins: woocommerce
 *
 * Put this file into wp-content/mu-plugins, and these lines into wp-config.php:
 *
 *     define( 'ORDER_CLOSER_REDIS', 'tcp://127.0.0.1:6379' );      // or tls://…
 *     define( 'ORDER_CLOSER_REDIS_AUTH', array( 'user', 'password' ) ); // or array( 'password' ); none if left out
 *     define( 'ORDER_CLOSER_REDIS_DB', 0 );
 *
 * An order's key expires when its time to be paid is over, by the setting "Hold stock (minutes)", which deadline in
 * woocommerce.toml has to say, too. A checkout waits no longer than half a second for Redis; an order without a key
 * is found by order-closer's sweep.
 */

defined( 'ABSPATH' ) || exit;

// Orders are cancelled by order-closer. WooCommerce reads them without a lock, and would free a coupon twice.
add_filter( 'woocommerce_cancel_unpaid_order', '__return_false', PHP_INT_MAX );

// Each time that an order is saved its deadline moves on.
add_action( 'woocommerce_after_order_object_save', 'order_closer_write_key', 10, 1 );

/**
 * Writes the key of an order that waits for its payment.
 *
 * @param WC_Order $order The order, as it was saved.
 */
function order_closer_write_key( $order ) {
	if ( ! defined( 'ORDER_CLOSER_REDIS' ) || ! $order instanceof WC_Order || 'pending' !== $order->get_status() ) {
		return;
	}
	if ( ! in_array( $order->get_created_via(), array( 'checkout', 'store-api' ), true ) || $order->get_date_paid() ) {
		return;
	}
	$minutes = (int) get_option( 'woocommerce_hold_stock_minutes', '60' );
	$changed = $order->get_date_modified();
	if ( $minutes < 1 || ! $changed ) {
		return;
	}
	$deadline = ( $changed->getTimestamp() + 60 * $minutes ) * 1000;
	$commands = array();
	if ( defined( 'ORDER_CLOSER_REDIS_AUTH' ) ) {
		$commands[] = array_merge( array( 'AUTH' ), (array) ORDER_CLOSER_REDIS_AUTH );
	}
	if ( defined( 'ORDER_CLOSER_REDIS_DB' ) && ORDER_CLOSER_REDIS_DB ) {
		$commands[] = array( 'SELECT', (string) ORDER_CLOSER_REDIS_DB );
	}
	$commands[] = array( 'SET', 'wc_order_' . $order->get_id(), '', 'PXAT', (string) $deadline );
	$error      = order_closer_say( $commands );
	if ( null !== $error ) {
		wc_get_logger()->warning( "order {$order->get_id()} has no key in Redis: $error", array( 'source' => 'order-closer' ) );
	}
}

/**
 * Sends commands to Redis at once, and reads an answer to each.
 *
 * @param array $commands Each a list of words.
 * @return string|null What went wrong.
 */
function order_closer_say( $commands ) {
	// phpcs:disable WordPress.WP.AlternativeFunctions, WordPress.PHP.NoSilencedErrors -- no file is meant, and failures are returned.
	$redis = @stream_socket_client( ORDER_CLOSER_REDIS, $code, $error, 0.25 );
	if ( ! $redis ) {
		return $error;
	}
	stream_set_timeout( $redis, 0, 250000 );
	$said = '';
	foreach ( $commands as $words ) {
		$said .= '*' . count( $words ) . "\r\n";
		foreach ( $words as $word ) {
			$said .= '$' . strlen( $word ) . "\r\n$word\r\n";
		}
	}
	fwrite( $redis, $said );
	$wrong = null;
	foreach ( $commands as $words ) {
		$answer = fgets( $redis );
		if ( false === $answer ) {
			$wrong = "no answer to {$words[0]}";
			break;
		}
		if ( '+' !== $answer[0] ) {
			$wrong = "{$words[0]}: " . trim( $answer );
			break;
		}
	}
	fclose( $redis );
	// phpcs:enable
	return $wrong;
}
