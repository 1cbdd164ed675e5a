<?php
// Stand-ins for what the plugin calls of WordPress, and four orders that are saved. Arguments: the plugin, Redis as tcp://…, its
// database, and a password or nothing. Prints what the plugin logs, and how it turned WooCommerce's own pass off.

[, $plugin, $redis, $database, $password] = $argv;
define( 'ABSPATH', '/' );
define( 'ORDER_CLOSER_REDIS', $redis );
define( 'ORDER_CLOSER_REDIS_DB', (int) $database );
if ( '' !== $password ) {
	define( 'ORDER_CLOSER_REDIS_AUTH', array( $password ) );
}

$hooks = array();
function add_filter( $name, $function, $priority = 10 ) {
	global $hooks;
	$hooks[ $name ] = array( $function, $priority );
}
function add_action( $name, $function, $priority = 10 ) {
	add_filter( $name, $function, $priority );
}
function get_option( $name, $default ) {
	return 'woocommerce_hold_stock_minutes' === $name ? '45' : $default;
}
function wc_get_logger() {
	return new class() {
		public function warning( $text ) {
			echo "$text\n";
		}
	};
}
class WC_Order {
	public function __construct( private $id, private $status, private $via, private $paid ) {}
	public function get_id() { return $this->id; }
	public function get_status() { return $this->status; }
	public function get_created_via() { return $this->via; }
	public function get_date_paid() { return $this->paid; }
	public function get_date_modified() { return new DateTime( '@4000000000' ); }
}

require $plugin;
foreach ( array(
	new WC_Order( 1, 'pending', 'store-api', null ),
	new WC_Order( 2, 'processing', 'checkout', null ),
	new WC_Order( 3, 'pending', 'admin', null ),
	new WC_Order( 4, 'pending', 'checkout', new DateTime() ),
) as $order ) {
	call_user_func( $hooks['woocommerce_after_order_object_save'][0], $order );
}
echo implode( ' ', $hooks['woocommerce_cancel_unpaid_order'] ), "\n";
